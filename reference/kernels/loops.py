"""The inner loops of the codecs: slices of a block in, slices of a block out, one simple operation after the other.

Each loop reads and writes whole contiguous slices from 0 to their length, and has no branch: in this form LLVM turns it
into vector instructions, and in others it does not.  Moments are worked on as the bits of their binary32 values.

    log8    nearest: the cell of the leading bits says how many thresholds lie below it, one comparison settles the rest
    lin8    nearest: integers, and one product in binary64 in place of a division; decode: an integer product
    bf16    integers
    ratio8  the second moment as log8's; the first by a quotient in binary64, decode by one product of binary32

Claimed: the codes and levels of `codecs`, bit for bit.  `nearest_on_bits` is exact: with `t = distance + pitch // 2` an
integer, the quotient wanted is `floor(t / pitch)`, and `(t + 1/2) / pitch` is at least `1/(2*pitch) >= 2**-32` from
every integer, while two roundings of a number below 2**8 err by less than 2**-43.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numba
import numpy as np

from guarded_moments.reference.codecs import BFloat16, Codec, FloatGrid, Lin8, Log8, LogGrid, Ratio8
from guarded_moments.reference.codecs.eight_bit import ESCAPE, EightBit
from guarded_moments.reference.codecs.tables import thresholds

_WITHOUT_SIGN = np.uint32(0x7FFF_FFFF)
_SIGN_TO_CODE = np.uint32(24)  #: places from the sign of a binary32 to that of a byte
_ZERO, _ONE = np.uint32(0), np.uint32(1)
_HALF_WORD, _BELOW_HALF = np.uint32(16), np.uint32(0x7FFF)


class OnTable(NamedTuple):
    """A moment's logarithmic grid."""

    mask: np.uint32  #: of a code's magnitude; the other bit of the byte is the sign
    shift: np.uint32  #: bits of a binary32 within a cell
    first: np.uint32  #: the cell of the lowest threshold
    last: np.uint32  #: that of the highest
    below: Any  #: int32, by cell from the first: thresholds below its lowest number
    thresholds: Any  #: uint32: bits of the thresholds, and of one above every number
    decoded: Any  #: uint32, (256,): bits of what each byte decodes to


class OnBits(NamedTuple):
    """A moment's grid on the float's own bits."""

    mask: np.uint32  #: as above
    base: np.int32
    step: np.int32
    half: np.int32  #: of the step, rounded down
    farthest: np.int32  #: of the highest level from the lowest
    inverse: np.float64  #: of the step


class Halves(NamedTuple):
    """bf16 has no parameters."""


class OnRoots(NamedTuple):
    """The first moment of `ratio8`: multiples of a step times the second's root."""

    step: np.float64
    multiples: Any  #: float32, (256,): what each byte stands for, times the step
    roots: Any  #: float32, (256,): of what each byte of the second moment stands for


@numba.njit(error_model="numpy")
def nearest_on_table(grid: Any, bits: Any, codes: Any) -> None:  # noqa: ANN401 - typed by numba
    """Codes of the nearest levels of a logarithmic grid."""
    for i in range(len(bits)):
        magnitude = np.uint32(bits[i] & _WITHOUT_SIGN)
        cell = np.uint32(min(max(np.uint32(magnitude >> grid.shift), grid.first), grid.last) - grid.first)
        index = np.uint32(grid.below[cell])
        index = np.uint32(index + np.uint32(magnitude >= grid.thresholds[index]))
        sign = np.uint32(np.uint32(bits[i] >> _SIGN_TO_CODE) & np.uint32(~grid.mask))
        codes[i] = np.uint8(np.uint32(np.uint32(index + _ONE) | sign) if magnitude != _ZERO else _ZERO)


@numba.njit(error_model="numpy")
def level_on_table(grid: Any, codes: Any, bits: Any) -> None:  # noqa: ANN401 - as above
    """What codes decode to; zero for an escape."""
    for i in range(len(codes)):
        bits[i] = grid.decoded[codes[i]]


@numba.njit(error_model="numpy")
def nearest_on_bits(grid: Any, bits: Any, codes: Any) -> None:  # noqa: ANN401 - as above
    """Codes of the nearest levels of a grid on the float's bits."""
    for i in range(len(bits)):
        magnitude = np.int32(bits[i] & _WITHOUT_SIGN)
        distance = np.int32(np.int32(magnitude - grid.base) + grid.half)
        distance = min(max(distance, np.int32(0)), grid.farthest)
        index = np.uint32(np.int32((np.float64(distance) + 0.5) * grid.inverse))
        sign = np.uint32(np.uint32(bits[i] >> _SIGN_TO_CODE) & np.uint32(~grid.mask))
        codes[i] = np.uint8(np.uint32(np.uint32(index + _ONE) | sign) if magnitude != np.int32(0) else _ZERO)


@numba.njit(error_model="numpy")
def level_on_bits(grid: Any, codes: Any, bits: Any) -> None:  # noqa: ANN401 - as above
    """What codes decode to; zero for an escape."""
    for i in range(len(codes)):
        code = np.uint32(np.uint32(codes[i]) & grid.mask)
        sign = np.uint32(np.uint32(np.uint32(codes[i]) & np.uint32(~grid.mask)) << _SIGN_TO_CODE)
        level = np.uint32(grid.base + np.int32(np.int32(np.int32(code) - np.int32(1)) * grid.step))
        bits[i] = np.uint32(level | sign) if code != _ZERO else _ZERO


@numba.njit(error_model="numpy")
def nearest_half(grid: Any, bits: Any, codes: Any) -> None:  # noqa: ANN401, ARG001 - as above; no parameters
    """The nearest bfloat16, ties to even."""
    for i in range(len(bits)):
        odd = np.uint32(np.uint32(bits[i] >> _HALF_WORD) & _ONE)
        codes[i] = np.uint16(np.uint32(np.uint32(bits[i] + _BELOW_HALF) + odd) >> _HALF_WORD)


@numba.njit(error_model="numpy")
def widened_half(grid: Any, codes: Any, bits: Any) -> None:  # noqa: ANN401, ARG001 - as above
    """The binary32 of a bfloat16."""
    for i in range(len(codes)):
        bits[i] = np.uint32(np.uint32(codes[i]) << _HALF_WORD)


@numba.njit(error_model="numpy")
def nearest_ratio(m_grid: Any, v_grid: Any, m_bits: Any, v_bits: Any, m_codes: Any, v_codes: Any) -> None:  # noqa: ANN401 - as above
    """Codes of the second moments, then the nearest multiples of their roots, ties to even."""
    nearest_on_table(v_grid, v_bits, v_codes)
    m = m_bits.view(np.float32)
    for i in range(len(m_codes)):
        unit = m_grid.step * np.float64(m_grid.roots[v_codes[i]])
        multiple = np.rint(np.float64(m[i]) / (unit if v_codes[i] != 0 else np.inf))
        m_codes[i] = np.uint8(np.int8(min(max(multiple, -127.0), 127.0)))


@numba.njit(error_model="numpy")
def level_ratio(m_grid: Any, v_grid: Any, m_codes: Any, v_codes: Any, m_bits: Any, v_bits: Any) -> None:  # noqa: ANN401 - as above
    """What codes decode to; zero for an escape."""
    level_on_table(v_grid, v_codes, v_bits)
    m = m_bits.view(np.float32)
    for i in range(len(m_codes)):
        m[i] = m_grid.multiples[m_codes[i]] * m_grid.roots[v_codes[i]]


class CodecLoops(NamedTuple):
    """One codec's loops over both moments and what they need."""

    encode: Callable[..., None]  #: `(m_grid, v_grid, m_bits, v_bits, m_codes, v_codes)`
    decode: Callable[..., None]  #: `(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits)`
    code_type: type[np.unsignedinteger[Any]]
    escape: int  #: the first moment's code where the pair is kept exactly; the second is then 0


def _each(loop: Callable[[Any, Any, Any], None]) -> Callable[..., None]:
    """A loop over one moment, over both."""

    @numba.njit(error_model="numpy")
    def both(m_grid, v_grid, m_from, v_from, m_into, v_into):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        loop(m_grid, m_from, m_into)
        loop(v_grid, v_from, v_into)

    result: Callable[..., None] = both
    return result


#: Of each codec that has any, by type; `joint` is a `Log8` in layout alone, and tries more than the nearest.
LOOPS: Mapping[type[Codec], CodecLoops] = MappingProxyType(
    {
        Log8: CodecLoops(_each(nearest_on_table), _each(level_on_table), np.uint8, ESCAPE),
        Lin8: CodecLoops(_each(nearest_on_bits), _each(level_on_bits), np.uint8, ESCAPE),
        BFloat16: CodecLoops(_each(nearest_half), _each(widened_half), np.uint16, 0x8000),
        Ratio8: CodecLoops(nearest_ratio, level_ratio, np.uint8, ESCAPE),
    }
)


def parameters_of(codec: Codec) -> tuple[Any, Any] | None:
    """What the loops need of one tensor's codec, for each moment; None where it has no loops.

    A family of grids has none: its runs are too short to be worth a table each.
    """
    if isinstance(codec, BFloat16):
        return Halves(), Halves()
    if isinstance(codec, Ratio8):
        if not isinstance(codec.v_grid, LogGrid):
            return None
        multiples, roots, decoded = (table.numpy() for table in codec.tables())
        return OnRoots(np.float64(codec.steps), multiples, roots), _on_table(codec.v_grid, 0xFF, decoded)
    if not isinstance(codec, EightBit) or type(codec) not in LOOPS:
        return None
    tables = codec.tables() if isinstance(codec.m_grid, LogGrid) and isinstance(codec.v_grid, LogGrid) else None
    found: list[Any] = []
    for place, (grid, mask) in enumerate(((codec.m_grid, 0x7F), (codec.v_grid, 0xFF))):
        if isinstance(grid, LogGrid) and tables is not None:
            found.append(_on_table(grid, mask, tables[place].numpy()))
        elif isinstance(grid, FloatGrid):
            found.append(_on_bits(grid, mask))
        else:
            return None
    return found[0], found[1]


def _on_bits(grid: FloatGrid, mask: int) -> OnBits:
    step = np.int32(grid.step)
    return OnBits(
        mask=np.uint32(mask),
        base=np.int32(grid.base),
        step=step,
        half=np.int32(grid.step // 2),
        farthest=np.int32((grid.levels - 1) * grid.step),
        inverse=np.float64(1 / grid.step),
    )


def _on_table(grid: LogGrid, mask: int, decoded: Any) -> OnTable:  # noqa: ANN401 - an array of numpy
    """The coarsest cells of which none has two thresholds: a few hundred, whatever the pitch."""
    bits = thresholds(grid).numpy().view(np.uint32)
    shift = next(s for s in range(31, -1, -1) if (np.diff(bits >> np.uint32(s)) > 0).all())
    first, last = (int(bits[end] >> np.uint32(shift)) for end in (0, -1))
    lowest = (np.arange(first, last + 1, dtype=np.int64) << shift).astype(np.uint32)
    return OnTable(
        mask=np.uint32(mask),
        shift=np.uint32(shift),
        first=np.uint32(first),
        last=np.uint32(last),
        below=np.searchsorted(bits, lowest, side="left").astype(np.int32),
        thresholds=np.append(bits, _WITHOUT_SIGN).astype(np.uint32),
        decoded=decoded.view(np.uint32),
    )
