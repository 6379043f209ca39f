"""ENC: which code a number gets.

The nearest level is found with mpmath's logarithm at high precision, not with the reference's thresholds.  Trusted:
mpmath; and that a position within `2**-100` of a half is a tie.  Only a power of two can tie (on a grid of rational
parameters the logarithm of any other number is irrational), and powers of two are on some of the grids' thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids
from guarded_moments.oracle.conformance.elementwise import LONGEST, require_elementwise
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import (
    GRIDS,
    POSITIVE,
    ZEROS,
    grids_of,
    log_uniform,
    ordinary_states,
    same_bits,
    signs,
)
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.shrink import simplest
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.floats import hex_of

_PRECISION = 160
_TIE = mpf(2) ** -100
_AROUND = 2  #: neighbours of each threshold that are tried, on either side
_RANDOM = 256
_CODES = 256
_SIGN = 0x80
_LARGEST = 2.0**128 - 2.0**104


class _Encoded(NamedTuple):
    """Numbers that a backend encoded as one of the moments."""

    moment: str
    grid: LogGrid
    values: Tensor  #: float32, shape (n,)
    codes: Tensor  #: int64, shape (n,)

    def require(self, conforms: Tensor, expected: Tensor, rule: str) -> None:
        """Fail with the simplest number that does not conform."""
        if bool(conforms.all()):
            return
        value = simplest(self.values[~conforms].unsqueeze(1))
        at = int((~conforms & same_bits(self.values, value)).nonzero()[0])
        code, right = int(self.codes[at]), int(expected[at])
        raise NonConformance(
            f"{self.moment} = {float(value):.9g} encodes to 0x{code:02x}, not 0x{right:02x}: {rule}",
            f"value     {hex_of(float(value))}",
            f"grid      {self.grid}",
            f"code      0x{code:02x}: {_level(self.moment, self.grid, code)}",
            f"expected  0x{right:02x}: {_level(self.moment, self.grid, right)}",
            f"kind      {_kind(self.moment, self.grid, float(value), code, right)}",
            f"see       {self._explain_line(float(value))}",
        )

    def _explain_line(self, value: float) -> str:
        low, high = self.grid.exponent(0), self.grid.exponent(self.grid.levels - 1)
        m, v = (value, 1.0) if self.moment == "m" else (0.0, value)
        shown = f"gmc explain --m {m.hex()} --v {v.hex()} --{self.moment}-range {low!r} {high!r}"
        return f"{shown} --tolerance 0.01 --grad-bound inf"


def _encode(trial: Trial, moment: str, grids: Grids, grid: LogGrid, values: Tensor) -> _Encoded:
    ones = torch.ones_like(values)
    codes = trial.backend.encode(*((values, ones) if moment == "m" else (ones, values)), grids)
    return _Encoded(moment, grid, values, (codes.m if moment == "m" else codes.v).long())


def _level(moment: str, grid: LogGrid, code: int) -> str:
    if moment == "m" and code == ESCAPE:
        return "the escape"
    index = (code & ~_SIGN if moment == "m" else code) - 1
    sign = "-" if moment == "m" and code > _SIGN else ""
    return "zero" if index < 0 else f"level {index}, {sign}2**{grid.exponent(index):.7g}"


def _kind(moment: str, grid: LogGrid, value: float, code: int, right: int) -> str:
    """Whether the number lies exactly in the middle of the two levels, or what was taken is farther."""
    if abs(code - right) != 1 or value == 0:
        return "bug: not even a neighbour of the right level"
    with mpmath.workprec(_PRECISION):
        position = (mpmath.log(mpf(abs(value)), 2) - mpf(grid.low)) / mpf(grid.step)
        middle = (mpf(max(code, right) & (~_SIGN if moment == "m" else _CODES - 1)) - 1) - mpf(1) / 2
        if abs(position - middle) < _TIE:
            return "rounding tie: exactly in the middle of two levels, and the larger is asked"
        return f"bug: the right level is nearer, by {mpmath.nstr(2 * abs(position - middle), 4)} of a step"


def nearest_codes(moment: str, grid: LogGrid, values: Tensor) -> Tensor:
    """The code of the level nearest in the logarithm, ties up, for numbers other than zero."""
    codes = []
    with mpmath.workprec(_PRECISION):
        for value in values.tolist():
            position = (mpmath.log(mpf(abs(value)), 2) - mpf(grid.low)) / mpf(grid.step) + mpf(1) / 2
            index = int(mpmath.floor(position + _TIE))
            code = min(max(index, 0), grid.levels - 1) + 1
            codes.append(code | _SIGN if moment == "m" and value < 0 else code)
    return torch.tensor(codes)


def near_thresholds(grid: LogGrid) -> Tensor:
    """The binary32 numbers around the middle, in the logarithm, of every two levels."""
    with mpmath.workprec(_PRECISION):
        middles = [float(mpf(2) ** mpf(grid.exponent(i + 0.5))) for i in range(grid.levels - 1)]
    bits = torch.tensor(middles, dtype=torch.float32).view(torch.int32).unsqueeze(1)
    return (bits + torch.arange(-_AROUND, _AROUND + 1, dtype=torch.int32)).flatten().view(torch.float32)


def nearest_in_the_logarithm(trial: Trial) -> None:
    """ENC-1."""
    for moment in ("m", "v"):
        for grids, grid in grids_of(moment):
            generator = trial.generator(f"ENC-1 {moment} {grid}")
            span = 2.0 ** grid.exponent(0) / 2, min(2.0 ** grid.exponent(grid.levels - 1) * 2, _LARGEST)
            anywhere = log_uniform(generator, _RANDOM, *span).float()
            values = torch.cat([near_thresholds(grid), anywhere])
            if moment == "m":
                values *= signs(generator, len(values)).float()
            encoded = _encode(trial, moment, grids, grid, values)
            expected = nearest_codes(moment, grid, values)
            encoded.require(encoded.codes == expected, expected, "the level nearest in the logarithm, ties up")


def zero_and_nothing_else_encodes_to_zero(trial: Trial) -> None:
    """ENC-2."""
    for moment in ("m", "v"):
        for grids, grid in grids_of(moment):
            zero = _encode(trial, moment, grids, grid, ZEROS if moment == "m" else ZEROS[:1])
            zero.require(zero.codes == 0, torch.zeros_like(zero.codes), "zero has code 0")
            values = torch.cat([POSITIVE, -POSITIVE]) if moment == "m" else POSITIVE
            other = _encode(trial, moment, grids, grid, values)
            lost = (other.codes == 0) | ((other.codes == ESCAPE) & (moment == "m"))
            other.require(~lost, nearest_codes(moment, grid, values), "it is not zero")


def codes_survive_decoding(trial: Trial) -> None:
    """ENC-3."""
    every = torch.arange(_CODES, dtype=torch.uint8)
    for grids in GRIDS:
        codes = Codes(every[every != ESCAPE], every[every != ESCAPE])
        _require_fixed(trial, grids, codes)
        _require_fixed(trial, grids, Codes(torch.ones(1, dtype=torch.uint8), every[every == ESCAPE]))


def _require_fixed(trial: Trial, grids: Grids, codes: Codes) -> None:
    decoded = trial.backend.decode(codes, grids)
    again = trial.backend.encode(decoded.m, decoded.v, grids)
    for moment, grid, before, values, after in zip("mv", grids, codes, decoded, again, strict=True):
        encoded = _Encoded(moment, grid, values, after.long())
        encoded.require(after == before, before.long(), "it was decoded from that code")


def out_of_range_clamps(trial: Trial) -> None:
    """ENC-4."""
    for moment in ("m", "v"):
        for grids, grid in grids_of(moment):
            values = torch.cat(list(_beyond(grid)))
            if moment == "m":
                values = torch.cat([values, -values])
            encoded = _encode(trial, moment, grids, grid, values)
            expected = nearest_codes(moment, grid, values)
            encoded.require(encoded.codes == expected, expected, "outside the grid the end level is nearest")


def _beyond(grid: LogGrid) -> Iterator[Tensor]:
    """Positive finite numbers below the first level and above the last."""
    steps = torch.arange(0, 150, dtype=torch.float64)
    below = torch.exp2(torch.clamp(grid.exponent(0) - steps, min=-149.0)).float()
    above = torch.exp2(grid.exponent(grid.levels - 1) + steps).float()
    yield below
    yield above[above.isfinite()]
    yield POSITIVE[POSITIVE.lt(below[0]) | POSITIVE.gt(above[0])]


def a_code_is_its_numbers_alone(trial: Trial) -> None:
    """ENC-5."""
    columns = ordinary_states(trial.generator("ENC-5"), LONGEST)
    for grids in GRIDS[:2]:

        def operation(m: Tensor, v: Tensor, grids: Grids = grids) -> Codes:
            return trial.backend.encode(m, v, grids)

        require_elementwise(operation, columns, ("m", "v"), ("the code of m", "the code of v"), f"encode, {grids}")


REQUIREMENTS = (
    Requirement(
        "ENC-1",
        "A number other than zero gets the code of the level nearest to it in the logarithm, ties to the larger.",
        "Bytes written on one device must be those written on another, and a wrong neighbour costs escapes.",
        Level.REPRODUCIBLE,
        nearest_in_the_logarithm,
        needs=("encode",),
    ),
    Requirement(
        "ENC-2",
        "Zero gets code 0, and nothing else does; no first-moment code is the escape.",
        "A tiny second moment that becomes zero divides by eps alone; a code that reads as the escape shifts "
        "every stored pair behind it.",
        Level.REPRODUCIBLE,
        zero_and_nothing_else_encodes_to_zero,
        needs=("encode",),
    ),
    Requirement(
        "ENC-3",
        "Encoding what a code decodes to gives that code again.",
        "A state that is saved, loaded and saved again must not drift.",
        Level.REPRODUCIBLE,
        codes_survive_decoding,
        needs=("encode", "decode"),
    ),
    Requirement(
        "ENC-4",
        "Numbers outside the grid, subnormal and huge ones included, get the code of the nearer end.",
        "An index that wraps around turns the largest moment into the smallest.",
        Level.REPRODUCIBLE,
        out_of_range_clamps,
        needs=("encode",),
    ),
    Requirement(
        "ENC-5",
        "A code depends on nothing but the number and the grid: not on the tensor's size, the place, the stride, the "
        "alignment or the other moment.",
        "Vectorised bodies and scalar tails are two pieces of code, and a block's edge is where they meet.",
        Level.REPRODUCIBLE,
        a_code_is_its_numbers_alone,
        needs=("encode",),
    ),
)
