"""Binary floating-point formats as exact numbers, and binary32 values as bits.

Claimed: the constants of a format (unit roundoff, half the smallest subnormal, overflow threshold) follow IEEE 754
from its precision and exponent range alone.  Trusted: Python's `fractions` and `struct`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction

import torch


@dataclass(frozen=True)
class FloatFormat:
    """A binary format with subnormals and round to nearest, ties to even."""

    precision: int  #: significand bits, the hidden one included (24 for binary32)
    largest_exponent: int  #: of a finite value written 1.f * 2**e (127 for binary32)

    @property
    def unit_roundoff(self) -> Fraction:
        """`u`: rounding a normal result errs by at most `u` times the result's magnitude."""
        return Fraction(1, 2**self.precision)

    @property
    def smallest_subnormal(self) -> Fraction:
        """The spacing of the grid around zero."""
        return Fraction(1, 2 ** (self.largest_exponent + self.precision - 2))

    @property
    def half_smallest_subnormal(self) -> Fraction:
        """`n`: the absolute error that underflow adds to a rounding."""
        return self.smallest_subnormal / 2

    @property
    def smallest_normal(self) -> Fraction:
        """Below this magnitude the relative error bound fails."""
        return Fraction(1, 2 ** (self.largest_exponent - 1))

    @property
    def largest(self) -> Fraction:
        """The largest finite value."""
        return (2 - 2 * self.unit_roundoff) * Fraction(2) ** self.largest_exponent


BINARY32 = FloatFormat(precision=24, largest_exponent=127)
BINARY64 = FloatFormat(precision=53, largest_exponent=1023)

LARGEST_FINITE_BITS = 0x7F7FFFFF  #: the bits of the largest finite binary32


def bits_of(value: float) -> int:
    """The 32 bits of `value` rounded to binary32, as an unsigned integer.

    The payload of a binary32 NaN survives, but a signalling NaN is quiet: converting it to a Python float made it so.
    """
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # rounds to infinity
        packed = struct.pack("<f", math.copysign(math.inf, value))
    return int(struct.unpack("<I", packed)[0])


def from_bits(bits: int) -> float:
    """The binary32 value with these 32 bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def round_to_binary32(value: float) -> float:
    """`value` rounded once to binary32 (nearest, ties to even), infinity on overflow: what `(float)value` does in C."""
    return float(torch.tensor(value, dtype=torch.float64).to(torch.float32))


def round_to_normal(value: float) -> float:
    """As `round_to_binary32`, but no positive number becomes less than the smallest normal one."""
    return max(round_to_binary32(value), float(BINARY32.smallest_normal)) if value > 0 else round_to_binary32(value)


def hex_of(value: float) -> str:
    """C99 hexadecimal with the six digits that binary32 needs, and the bits: `0x1.800000p-12 [39c00000]`."""
    bits = bits_of(value)
    if not math.isfinite(value):
        return f"{value} [{bits:08x}]"
    mantissa, exponent = value.hex().split("p")
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction[:6].ljust(6, '0')}p{exponent} [{bits:08x}]"


def round_down(value: Fraction) -> float:
    """The largest binary64 that is at most `value` (infinity is never returned)."""
    nearest = _nearest(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def round_up(value: Fraction) -> float:
    """The smallest binary64 that is at least `value` (minus infinity is never returned)."""
    return -round_down(-value) + 0.0  # zero is plus zero


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float(BINARY64.largest) if value > 0 else -float(BINARY64.largest)


def square_root_up(value: Fraction) -> Fraction:
    """A rational at least the square root of `value >= 0`, at most a relative `2**-100` above it."""
    if value == 0:
        return Fraction(0)
    shift = max(0, 110 - value.numerator.bit_length() + value.denominator.bit_length())
    shift = 2 * ((shift + 200) // 2)
    scaled = -((-value.numerator << shift) // value.denominator)  # rounded up
    root = math.isqrt(scaled)
    root += root * root < scaled
    return Fraction(root, 1 << (shift // 2))


def square_root_down(value: Fraction) -> Fraction:
    """A rational at most the square root of `value >= 0`, at most a relative `2**-100` below it."""
    return value / square_root_up(value) if value else Fraction(0)


def ordinals(values: torch.Tensor) -> torch.Tensor:
    """Map non-negative binary32 values to int32 so that neighbours differ by one (their own bits)."""
    return values.view(torch.int32)


def from_ordinals(integers: torch.Tensor) -> torch.Tensor:
    """The inverse of `ordinals`: int32 bits to float32."""
    return integers.to(torch.int32).view(torch.float32)
