"""Real intervals as Arb's balls: a midpoint, and a radius that counts every error.

Claimed: each function's result contains every result of the real operation on members of its operands.

Trusted: `rounding`; that Arb (in FLINT) makes balls with that property of sums, products, quotients, roots, hulls and
intersections, and comparisons true only where they hold of all members; that python-flint hands them on, and takes
Python's floats exactly.  The precision is that of `flint.ctx`, 53 bits unless someone sets another: with fewer the
balls are wider, never wrong.  A ball that is not finite says nothing, and compares false.  The tests compare all of it
with fractions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from flint import arb

from guarded_moments.oracle.intervals.protocol import UnboundedError
from guarded_moments.oracle.intervals.rounding import Rounding
from guarded_moments.reference.floats import BINARY32

#: Two balls known to fewer bits than this are multiplied by their ends: Arb's product of balls is wider than the
#: interval of the products by twice the product of the radii, which is only then worth the time.
_WIDE = 6

_LARGEST = arb(float(BINARY32.largest))
_RELATIVE = {
    units: arb(0, units * float(BINARY32.unit_roundoff)) for units in {rounding.units for rounding in Rounding}
}
_HALF_SUBNORMAL = arb(0, float(BINARY32.half_smallest_subnormal))

thin: Callable[[float], arb] = arb
add: Callable[[arb, arb], arb] = operator.add
sub: Callable[[arb, arb], arb] = operator.sub
negate: Callable[[arb], arb] = operator.neg
intersect: Callable[[arb, arb], arb] = arb.intersection
is_less: Callable[[arb, arb], bool] = operator.lt
is_at_most: Callable[[arb, arb], bool] = operator.le


def from_ends(low: float, high: float) -> arb:
    """A ball around the numbers from one finite float to another."""
    return arb(low).union(arb(high))


def mul(a: arb, b: arb) -> arb:
    """`a * b`."""
    if a.rel_accuracy_bits() < _WIDE and b.rel_accuracy_bits() < _WIDE:
        low, high, least, most = a.lower(), a.upper(), b.lower(), b.upper()
        return (low * least).union(high * most).union((low * most).union(high * least))
    return a * b


def div(a: arb, b: arb) -> arb:
    """`a / b` for `b > 0`.

    Raises:
        UnboundedError: `b` is not known to be positive.
    """
    if not b > 0:
        raise UnboundedError
    return a / b


def sqrt(a: arb) -> arb:
    """The square roots of the members that are not negative."""
    return a.nonnegative_part().sqrt()


def is_positive(a: arb) -> bool:
    """Whether `a > 0`."""
    return a > 0


def is_negative(a: arb) -> bool:
    """Whether `a < 0`."""
    return a < 0


def magnitudes(a: arb) -> tuple[float, float]:
    """At most the smallest and at least the largest absolute value in `a`; infinity where the ball says nothing."""
    # Going to the neighbour covers the conversion's own rounding, which is to nearest.
    least, most = (float(end) for end in (a.abs_lower(), a.abs_upper()))
    if not most < math.inf:
        return 0.0, math.inf
    return math.nextafter(least, 0.0), math.nextafter(most, math.inf)


def rounded(a: arb, rounding: Rounding) -> arb:
    """All results of rounding a member of `a`.

    Raises:
        UnboundedError: a member may be beyond the largest finite value, so that its rounding may be infinite.
    """
    if not abs(a) <= _LARGEST:
        raise UnboundedError
    return a + _error(a, rounding)


def with_errors(difference: arb, one: arb, other: arb, rounding: Rounding) -> arb:
    """`difference`, plus the errors of rounding a member of `one` and a member of `other`."""
    return difference + _error(one, rounding) + _error(other, rounding)


def _error(a: arb, rounding: Rounding) -> arb:
    """All errors of rounding a member `x` of `a`: at most `k u |x| + n`."""
    relative = a * _RELATIVE[rounding.units]
    return relative + _HALF_SUBNORMAL if rounding.underflow else relative
