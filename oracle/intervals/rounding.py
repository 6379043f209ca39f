"""What one binary32 rounding does to an exact result.

Rounding to nearest is monotone, so the roundings of an interval's members lie between the roundings of its ends.  A
result `r` of the exact `x` obeys `|r - x| <= max(k u |x|, n)` with `u = 2**-24` and `n = 2**-150`.  For rounding to
nearest `k = 1`: half a unit in the last place of a normal result, half the smallest subnormal below.  For a root
within one unit in the last place of the correctly rounded one `k = 3`.  Sums, differences and roots of binary32 values
need no `n`: where they are subnormal they are exact.  Rounding keeps the sign, and zero stays zero.

Trusted: IEEE 754; that the platform's root is a function, within one unit in the last place of the correctly rounded
root, and zero at zero.
"""

from __future__ import annotations

from enum import Enum

from guarded_moments.reference.floats import BINARY32


class Rounding(Enum):
    """Which operation's result is rounded."""

    SUM = "to nearest; exact where subnormal", 1, 0.0  #: also of a correctly rounded root
    PRODUCT = "to nearest", 1, float(BINARY32.half_smallest_subnormal)  #: also of a quotient and a fused product
    PLATFORM_ROOT = "within one unit in the last place of the nearest; never subnormal", 3, 0.0

    def __init__(self, description: str, units: int, underflow: float) -> None:
        self.description = description
        self.units = units  #: `k`
        self.underflow = underflow  #: `n`; zero where none is needed
