"""DEC: what codes decode to.

Levels are judged against mpmath's logarithm and powers at high precision, not against the reference's tables.
Trusted: mpmath.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments
from guarded_moments.oracle.conformance.elementwise import LONGEST, require_elementwise
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import GRIDS, same_bits
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.floats import BINARY32, hex_of

_PRECISION = 256
_CODES = 256
_SIGN = 0x80


class _Table(NamedTuple):
    """What a backend decodes every byte of one moment to."""

    moment: str
    grid: LogGrid
    decoded: Tensor  #: float32, shape (256,)


def _tables(trial: Trial) -> Iterator[_Table]:
    codes = torch.arange(_CODES, dtype=torch.uint8)
    for grids in GRIDS:
        m, v = trial.backend.decode(Codes(codes, codes), grids)
        yield from (_Table("m", grids.m, m), _Table("v", grids.v, v))


def _levels(table: _Table) -> Iterator[tuple[int, int, float]]:
    """Each code that stands for a level, the level's index and what the code decodes to."""
    for code, value in enumerate(table.decoded.tolist()):
        index = (code & ~_SIGN if table.moment == "m" else code) - 1
        if index >= 0:
            yield code, index, value


def levels_are_correctly_rounded(trial: Trial) -> None:
    """DEC-1."""
    for table in _tables(trial):
        for code, index, value in _levels(table):
            negative = table.moment == "m" and code > _SIGN
            magnitude = -value if negative else value
            with mpmath.workprec(_PRECISION):
                exact = mpf(2) ** mpf(table.grid.exponent(index))
                if magnitude > 0 and _is_nearest(magnitude, exact):
                    continue
                shown = mpmath.nstr(-exact if negative else exact, 20)
            raise NonConformance(
                f"{table.moment} code 0x{code:02x} decodes to {value:.9g}, which is not nearest to 2**x",
                f"grid     {table.grid}",
                f"x        {table.grid.exponent(index)!r}, level {index}",
                f"exact    {shown}",
                f"decoded  {hex_of(value)}",
                f"kind     {_kind(magnitude, exact)}",
            )


def _kind(magnitude: float, exact: mpf) -> str:
    """Whether the other neighbour of the exact value was taken, or another number altogether.  No level is a tie."""
    with mpmath.workprec(BINARY32.precision):
        down, up = (float(mpmath.fadd(exact, 0, rounding=direction)) for direction in "fc")
    return "rounding: the farther of the two neighbours" if magnitude in {down, up} else "bug: not even a neighbour"


def _is_nearest(value: float, exact: mpf) -> bool:
    """Whether no neighbour in binary32 is nearer to `exact`, which is in the range of normal numbers."""
    here = torch.tensor(value)
    distance = abs(mpf(value) - exact)
    around = (float(torch.nextafter(here, torch.tensor(side))) for side in (0.0, torch.inf))
    return all(distance <= abs(mpf(neighbour) - exact) for neighbour in around)


def only_the_zero_codes_decode_to_zero(trial: Trial) -> None:
    """DEC-2."""
    for table in _tables(trial):
        zero_codes = {0, ESCAPE} if table.moment == "m" else {0}
        plus_zero = same_bits(table.decoded, torch.zeros_like(table.decoded)).tolist()
        for code, value in enumerate(table.decoded.tolist()):
            must = code in zero_codes
            if plus_zero[code] if must else value != 0:
                continue
            what = "which must be +0" if must else "and only code 0 and the escape may"
            raise NonConformance(
                f"{table.moment} code 0x{code:02x} decodes to {value:g}, {what}",
                f"grid     {table.grid}",
                f"decoded  {hex_of(value)}",
            )


def levels_are_sorted_and_distinct(trial: Trial) -> None:
    """DEC-3."""
    for table in _tables(trial):
        positive = table.decoded[: _SIGN if table.moment == "m" else _CODES]
        _require_increasing(table, positive)
        if table.moment == "m":
            _require_mirrored(table, positive[1:], table.decoded[_SIGN + 1 :])


def _require_increasing(table: _Table, decoded: Tensor) -> None:
    stuck = (~(decoded[:-1] < decoded[1:])).nonzero()
    if len(stuck):
        code = int(stuck[0])
        raise NonConformance(
            f"{table.moment} code 0x{code + 1:02x} does not decode to more than code 0x{code:02x}",
            f"grid       {table.grid}",
            f"code 0x{code:02x}  {hex_of(float(decoded[code]))}",
            f"code 0x{code + 1:02x}  {hex_of(float(decoded[code + 1]))}",
        )


def _require_mirrored(table: _Table, positive: Tensor, negative: Tensor) -> None:
    different = (~same_bits(-positive, negative)).nonzero()
    if len(different):
        code = int(different[0]) + 1
        raise NonConformance(
            f"m code 0x{code | _SIGN:02x} does not decode to minus what code 0x{code:02x} does",
            f"grid       {table.grid}",
            f"code 0x{code:02x}  {hex_of(float(positive[code - 1]))}",
            f"code 0x{code | _SIGN:02x}  {hex_of(float(negative[code - 1]))}",
        )


def a_value_is_its_codes_alone(trial: Trial) -> None:
    """DEC-4."""
    generator = trial.generator("DEC-4")
    columns = [torch.randint(_CODES, (LONGEST,), generator=generator).to(torch.uint8) for _ in range(2)]
    for grids in GRIDS[:2]:

        def operation(m: Tensor, v: Tensor, grids: Grids = grids) -> Moments:
            return trial.backend.decode(Codes(m, v), grids)

        require_elementwise(operation, columns, ("m code", "v code"), ("m", "v"), f"decode, {grids}")


REQUIREMENTS = (
    Requirement(
        "DEC-1",
        "Every level decodes to the binary32 nearest to 2**(low + index*step).",
        "Files move between devices and languages: a level that differs by one unit in the last place is another "
        "state, for which no guard was asked.",
        Level.REPRODUCIBLE,
        levels_are_correctly_rounded,
        needs=("decode",),
    ),
    Requirement(
        "DEC-2",
        "Code 0 decodes to plus zero, and no other code does but the escape, whose value the stored pair replaces.",
        "A coordinate that never had a gradient must not start to move, and one that moves must not stop.",
        Level.REPRODUCIBLE,
        only_the_zero_codes_decode_to_zero,
        needs=("decode",),
    ),
    Requirement(
        "DEC-3",
        "Levels increase with the code and are distinct, and negative ones mirror the positive.",
        "The nearest level is found by comparing with thresholds, which presumes their order.",
        Level.REPRODUCIBLE,
        levels_are_sorted_and_distinct,
        needs=("decode",),
    ),
    Requirement(
        "DEC-4",
        "What a code decodes to depends on nothing but the code and the grid: not on the tensor's size, the place, the "
        "stride or the alignment.",
        "Vectorised bodies and scalar tails are two pieces of code, and views of a buffer start anywhere.",
        Level.REPRODUCIBLE,
        a_value_is_its_codes_alone,
        needs=("decode",),
    ),
)
