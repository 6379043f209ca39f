"""Each codec's scalar twin: one coordinate at a time, in exact arithmetic, plainly right.

The array forms compare with tables and shift bits; a twin says what is nearest.  Twins take what the codec was built
from (a grid, a map and a scale) and share none of its formulas.
"""

from bisect import bisect
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Protocol

import mpmath
import numpy as np
import torch

from guarded_moments.reference.codecs import (
    BFloat16,
    Blockwise8,
    Codec,
    Entropy,
    FloatGrid,
    GridFamily,
    LogGrid,
    Ratio8,
)
from guarded_moments.reference.codecs.eight_bit import EightBit
from guarded_moments.reference.floats import LARGEST_FINITE_BITS, bits_of, from_bits

PRECISION = 300
BLOCK = 256


class Twin(Protocol):
    """One coordinate at a time."""

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:
        """Both codes."""
        ...

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:
        """What codes other than the escape stand for."""
        ...


def twin_of(codec: Codec) -> Twin:
    if isinstance(codec, EightBit):
        return EightBitTwin(codec)
    if isinstance(codec, Blockwise8):
        return Blockwise8Twin(codec)
    if isinstance(codec, Ratio8):
        return Ratio8Twin(codec)
    if isinstance(codec, Entropy):
        return EntropyTwin(codec)
    assert isinstance(codec, BFloat16)
    return BFloat16Twin()


class EightBitTwin:
    """log8, lin8 and joint."""

    def __init__(self, codec: EightBit) -> None:
        self.codec = codec

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:
        """See `Twin`."""
        m_grid, v_grid = (member(grid, place) for grid in (self.codec.m_grid, self.codec.v_grid))
        m_code = nearest(abs(m), m_grid)
        return m_code | (0x80 if m < 0 and m_code else 0), nearest(v, v_grid)

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:
        """See `Twin`."""
        m_grid, v_grid = (member(grid, place) for grid in (self.codec.m_grid, self.codec.v_grid))
        m = level(m_code & 0x7F, m_grid)
        return -m if m_code > 0x80 else m, level(v_code, v_grid)


def member(grid: object, place: int) -> LogGrid | FloatGrid:
    found = grid.member(place // grid.size) if isinstance(grid, GridFamily) else grid
    assert isinstance(found, LogGrid | FloatGrid)
    return found


def nearest(magnitude: float, grid: LogGrid | FloatGrid) -> int:
    """0 for zero, else 1 more than the level nearest on the grid's scale, ties to the larger."""
    if magnitude == 0:
        return 0
    if isinstance(grid, FloatGrid):
        index = (Fraction(bits_of(magnitude) - grid.base, grid.step) + Fraction(1, 2)).__floor__()
    else:
        with mpmath.workprec(PRECISION):
            position = (mpmath.log(mpmath.mpf(magnitude), 2) - mpmath.mpf(grid.low)) / mpmath.mpf(grid.step)
            twice = mpmath.nint(2 * position)
            if abs(2 * position - twice) < mpmath.mpf(2) ** -200:  # only powers of two come that near without being it
                position = twice / 2
            index = int(mpmath.floor(position + mpmath.mpf(0.5)))
    return min(max(index, 0), grid.levels - 1) + 1


@cache
def level(code: int, grid: LogGrid | FloatGrid) -> float:
    """Zero, or the level correctly rounded."""
    if code == 0:
        return 0.0
    if isinstance(grid, FloatGrid):
        return from_bits(grid.base + (code - 1) * grid.step)
    with mpmath.workprec(PRECISION):
        exact = mpmath.mpf(2) ** mpmath.mpf(grid.exponent(code - 1))
    return rounded(exact)


def rounded(exact: mpmath.mpf) -> float:
    """To the nearest binary32; no power of two here is a tie."""
    with mpmath.workprec(24):
        return float(+exact)


class Ratio8Twin:
    """ratio8: what is nearest by fractions, what is decoded by a power of two and a product, each rounded by hand."""

    def __init__(self, codec: Ratio8) -> None:
        self.codec = codec

    def _at(self, place: int) -> tuple[LogGrid | FloatGrid, Fraction]:
        family = self.codec.v_grid
        group = place // family.size if isinstance(family, GridFamily) else 0
        return member(family, place), Fraction(float(self.codec.steps[group]))

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:
        """See `Twin`."""
        grid, step = self._at(place)
        v_code = nearest(v, grid)
        if v_code == 0:
            return 0, 0
        multiple = round(Fraction(m) / (step * Fraction(root(v_code, grid))))  # of Python: ties to even
        return min(max(multiple, -127), 127) & 0xFF, v_code

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:
        """See `Twin`."""
        grid, step = self._at(place)
        multiple = m_code - 256 if m_code > 0x80 else m_code
        exact = multiple * step * Fraction(root(v_code, grid))
        # The sign of a zero is the product's: of no code that an encoder makes.
        zero = -0.0 if multiple < 0 else 0.0
        return nearest_binary32(exact) if exact else zero, level(v_code, grid)


class EntropyTwin:
    """entropy: levels by their number from 2**-126 on, codes counted from what row and column say."""

    def __init__(self, codec: Entropy) -> None:
        self.choice = codec.choice
        self.centers = [128 << bits for bits in codec.choice.low_bits]
        count = (127 * 65536 + 32768 + 126 * 65536) // codec.choice.pitch + 1
        self.grid = LogGrid.of_units(-126 * 65536, codec.choice.pitch, count)

    def _counted_from(self, place: int) -> int:
        columns = len(self.choice.columns)
        if not columns:
            return self.choice.base
        row, column = divmod(place, columns)
        return self.choice.base + self.choice.unit * (int(self.choice.rows[row]) + int(self.choice.columns[column]))

    def _exponent(self, v_code: int, place: int) -> int:
        number = self._counted_from(place) + v_code - self.centers[1]
        return min(max(-126 * 65536 + number * self.choice.pitch, -126 * 65536), 127 * 65536 + 32768)

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:
        """See `Twin`."""
        if v == 0:
            return self.centers[0], 0
        code = nearest(v, self.grid) - 1 - self._counted_from(place) + self.centers[1]
        v_code = min(max(code, 1), 2 * self.centers[1] - 1)
        unit = Fraction(float(self.choice.step)) * Fraction(power(self._exponent(v_code, place), 1 << 17))
        largest = self.centers[0] - 1
        return min(max(round(Fraction(m) / unit), -largest), largest) + self.centers[0], v_code

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:
        """See `Twin`."""
        exact = (m_code - self.centers[0]) * Fraction(float(self.choice.step))
        if v_code == 0:
            return -0.0 if exact < 0 else 0.0, 0.0
        exponent = self._exponent(v_code, place)
        product = exact * Fraction(power(exponent, 1 << 17))
        return nearest_binary32(product) if product else 0.0, power(exponent, 1 << 16)


@cache
def power(exponent: int, units: int) -> float:
    """`2**(exponent/units)`, correctly rounded."""
    with mpmath.workprec(PRECISION):
        exact = mpmath.mpf(2) ** (mpmath.mpf(exponent) / units)
    return rounded(exact)


@cache
def root(code: int, grid: LogGrid | FloatGrid) -> float:
    """Zero, or the root of the exact level correctly rounded."""
    assert isinstance(grid, LogGrid)
    if code == 0:
        return 0.0
    with mpmath.workprec(PRECISION):
        exact = mpmath.sqrt(mpmath.mpf(2) ** mpmath.mpf(grid.exponent(code - 1)))
    return rounded(exact)


def nearest_binary32(exact: Fraction) -> float:
    """To nearest, ties to even, of what lies among normal numbers."""
    magnitude = abs(exact)
    ulp = Fraction(2) ** (magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 24)
    while magnitude >= 2**24 * ulp:
        ulp *= 2
    return float(round(exact / ulp) * ulp)


class BFloat16Twin:
    """bf16."""

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:  # noqa: ARG002 - the same everywhere
        """See `Twin`."""
        return self._one(m), self._one(v)

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:  # noqa: ARG002 - as above
        """See `Twin`."""
        return from_bits(m_code << 16), from_bits(v_code << 16)

    @staticmethod
    def _one(value: float) -> int:
        below = bits_of(value) >> 16  # toward zero
        magnitude = abs(Fraction(value))
        low = abs(Fraction(from_bits(below << 16)))
        # One more than the largest is infinity, and rounds as the power of two that it stands in for.
        largest = LARGEST_FINITE_BITS >> 16
        high = Fraction(2**128) if below & 0x7FFF == largest else abs(Fraction(from_bits((below + 1) << 16)))
        if magnitude - low == high - magnitude:
            return below + (below & 1)
        return below + (magnitude - low > high - magnitude)


class Blockwise8Twin:
    """blockwise8."""

    def __init__(self, codec: Blockwise8) -> None:
        self.codec = codec
        self.signed, self.unsigned = dynamic_values(signed=True), dynamic_values(signed=False)

    def encode(self, m: float, v: float, place: int = 0) -> tuple[int, int]:
        """See `Twin`."""
        block = place // BLOCK
        return (
            closest(m, float(self.codec.m_scales[block]), self.signed),
            closest(v, float(self.codec.v_scales[block]), self.unsigned),
        )

    def decode(self, m_code: int, v_code: int, place: int = 0) -> tuple[float, float]:
        """See `Twin`."""
        block = place // BLOCK
        scales = (self.codec.m_scales[block], self.codec.v_scales[block])
        values = (self.signed[m_code], self.unsigned[v_code])
        m, v = (
            float(np.float32(value) * np.float32(float(scale))) for value, scale in zip(values, scales, strict=True)
        )
        return m, v


def closest(value: float, scale: float, values: list[float]) -> int:
    """The code whose value is nearest to the ratio as binary32 has it, ties to the larger."""
    with np.errstate(over="ignore"):
        ratio = np.float32(value) / np.float32(scale or 1.0)
    if np.isinf(ratio):
        return len(values) - 1 if ratio > 0 else 0
    exact, above = Fraction(float(ratio)), bisect(values, float(ratio))
    beside = [code for code in (above - 1, above) if 0 <= code < len(values)]
    return min(beside, key=lambda code: (abs(Fraction(values[code]) - exact), -values[code]))


def dynamic_values(*, signed: bool) -> list[float]:
    """The dynamic map as its authors build it: decades of evenly spaced means, in mpmath."""
    with mpmath.workprec(PRECISION):
        found = [mpmath.mpf(0), mpmath.mpf(1)]
        for decade in range(7):
            count = 2**decade if signed else 2 ** (decade + 1)
            ends = [mpmath.mpf(1) / 10 + mpmath.mpf(9) * i / (10 * count) for i in range(count + 1)]
            means = [(a + b) / 2 * mpmath.mpf(10) ** (decade - 6) for a, b in pairwise(ends)]
            found += [*means, *(-x for x in means)] if signed else means
        return [rounded(x) for x in sorted(found)]


def families(kind: type[LogGrid | FloatGrid], ends: list[tuple[float, float]], levels: int, size: int) -> GridFamily:
    """A family of the grids that span these ranges."""
    single = [kind.spanning(low, high, levels) for low, high in ends]
    origins, pitches = (torch.tensor(x) for x in zip(*((g.origin, g.pitch) for g in single), strict=True))
    return GridFamily(kind, origins, pitches, levels, size)
