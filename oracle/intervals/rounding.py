"""What one binary32 rounding does to an interval of exact results.

Rounding to nearest is monotone, so the results lie between the roundings of the ends.  A result `r` of the exact `x`
obeys `|r - x| <= max(k u |x|, n)` with `u = 2**-24` and `n = 2**-150`.  For rounding to nearest `k = 1`: half a unit
in the last place of a normal result, half the smallest subnormal below.  For a root within one unit in the last place
of the correctly rounded one `k = 3`.  Sums, differences and roots of binary32 values need no `n`: where they are
subnormal they are exact.  Rounding keeps the sign, and zero stays zero.

Claimed: `rounded` encloses every result of rounding a member, `error` bounds every distance.  Trusted: IEEE 754;
mpmath's rounding to nearest at 24 bits; that the platform's root is a function, within one unit in the last place of
the correctly rounded root, and zero at zero.
"""

from __future__ import annotations

from enum import Enum

from guarded_moments.oracle.intervals import mpf
from guarded_moments.oracle.intervals.mpf import Interval, Mpf, UnboundedError
from guarded_moments.reference.floats import BINARY32

_PRECISION = BINARY32.precision
_LARGEST_EXPONENT = BINARY32.largest_exponent
_LARGEST = mpf.from_float(float(BINARY32.largest))
_LARGEST_NEGATIVE = mpf.from_float(-float(BINARY32.largest))
_HALF_SUBNORMAL = mpf.from_float(float(BINARY32.half_smallest_subnormal))


class Rounding(Enum):
    """Which operation's result is rounded."""

    SUM = "to nearest; exact where subnormal"  #: also of a correctly rounded root
    PRODUCT = "to nearest"  #: also of a quotient and a fused product
    PLATFORM_ROOT = "within one unit in the last place of the nearest; never subnormal"


def error(x: Mpf, rounding: Rounding) -> Mpf:
    """At least the error of rounding any number of magnitude at most `x >= 0`; zero stays zero."""
    _, mantissa, exponent, bits = x
    if not mantissa:
        return mpf.ZERO
    if rounding is Rounding.PRODUCT and _is_tiny(x):
        return _HALF_SUBNORMAL
    unit = (0, mantissa, exponent - _PRECISION, bits)
    if rounding is Rounding.PLATFORM_ROOT:
        return mpf.add_up(unit, (0, mantissa, exponent - _PRECISION + 1, bits))
    return unit


def rounded(x: Interval, rounding: Rounding) -> Interval:
    """All results of rounding a member of `x`.

    Raises:
        UnboundedError: a member is beyond the largest finite value, so that its rounding may be infinite.
    """
    low, high = x
    if low[2] + low[3] > _LARGEST_EXPONENT and mpf.exceeds(_LARGEST_NEGATIVE, low):
        raise UnboundedError
    if high[2] + high[3] > _LARGEST_EXPONENT and mpf.exceeds(high, _LARGEST):
        raise UnboundedError
    if rounding is Rounding.PLATFORM_ROOT:
        return mpf.sub_down(low, error(low, rounding)), mpf.add_up(high, error(high, rounding))
    least, most = mpf.nearest(low, _PRECISION), mpf.nearest(high, _PRECISION)
    if rounding is Rounding.PRODUCT:
        # Below the normal range the grid is coarser than that.
        if _is_tiny(low):
            least = mpf.sub_down(low, _HALF_SUBNORMAL)
            least = least if low[0] else mpf.larger(least, mpf.ZERO)
        if _is_tiny(high):
            most = mpf.add_up(high, _HALF_SUBNORMAL)
            most = mpf.smaller(most, mpf.ZERO) if high[0] else most
    return least, most


def _is_tiny(x: Mpf) -> bool:
    """Whether `0 < |x| < 2**-126`."""
    return bool(x[1]) and x[2] + x[3] < 2 - _LARGEST_EXPONENT
