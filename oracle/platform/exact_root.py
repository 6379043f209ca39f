"""The square root of a binary32 value by integers alone: slow, obvious, and independent of every floating-point unit.

Claimed: `nearest_root` is the bits of the correctly rounded root; `root_error` encloses a candidate's error so closely
that its two ends agree to 2**-80 units.  Trusted: Python's integers and `math.isqrt`.
"""

from __future__ import annotations

import math
from fractions import Fraction

_INFINITY = 0x7F800000
_FRACTION = 0x007FFFFF
_HIDDEN = 0x00800000
_BIAS = 127
_GUARD_BITS = 120  #: of the root, beyond those that an integer significand gives it: one at least


def _significand(bits: int) -> tuple[int, int]:
    """`(m, e)` with the value `m * 2**e`, for the bits of a non-negative finite binary32."""
    field, fraction = bits >> 23, bits & _FRACTION
    return (fraction, -149) if field == 0 else (fraction | _HIDDEN, field - 150)


def _scaled_root(bits: int) -> tuple[int, int, bool]:
    """`(r, k, exact)`: the root lies in `[r, r+1) * 2**k`, and is `r * 2**k` where `exact`."""
    m, e = _significand(bits)
    if e % 2:
        m, e = 2 * m, e - 1
    radicand = m << (2 * _GUARD_BITS)
    root = math.isqrt(radicand)
    return root, e // 2 - _GUARD_BITS, root * root == radicand


def nearest_root(bits: int) -> int:
    """The bits of the correctly rounded square root of the binary32 with these bits, finite and not below zero."""
    if bits == 0:
        return 0
    root, exponent, exact = _scaled_root(bits)
    dropped = root.bit_length() - 24
    kept, rest = root >> dropped, root & ((1 << dropped) - 1)
    half = 1 << (dropped - 1)
    kept += rest > half or (rest == half and (not exact or kept % 2 == 1))
    # The carry into a 25th bit is the next exponent: consecutive values have consecutive bits.
    return ((exponent + dropped + 23 + _BIAS) << 23) + kept - _HIDDEN


def root_error(bits: int, candidate: int) -> tuple[Fraction, Fraction]:
    """Lower and upper bound of `|candidate - root|` in units in the last place of the exact root.

    Args:
        bits: of the radicand, positive and finite.
        candidate: bits of what should be its root, finite and not negative.
    """
    root, exponent, exact = _scaled_root(bits)
    m, e = _significand(candidate)
    unit = Fraction(2) ** (root.bit_length() - 24)  # of the root's last place, in units of 2**exponent
    value = m * Fraction(2) ** (e - exponent)
    distances = abs(value - root) / unit, abs(value - (root + (not exact))) / unit
    if root < value < root + 1:
        return Fraction(0), max(distances)
    return min(distances), max(distances)
