"""How far a formula's value in some binary format is from the exact one, underflow included: exact rationals.

`RoundingCount` counts roundings and assumes that nothing underflows, which binary32 does not grant.  Here an element
knows besides its count `k` between which numbers its exact value `X >= 0` lies, and an absolute error `a`:

    t**k * X - a <= f <= t**-k * X + a,    t = 1 - u

for the computed value `f`.  A product or a quotient that may be subnormal adds half the smallest subnormal to `a`; a
sum or a difference of two floats never loses anything there.  What may overflow is told: then `f` may be infinity, but
only where `X` is above the half of the largest number, and the least of it and something smaller is the smaller.

Claimed: the rules are sound for any formula on non-negative numbers, or `NotBoundedError` is raised.  The counts are
`RoundingCount`'s, whose rules `proofs` derives for any unit roundoff.  Those for `a` of sums, products and quotients
are its lemmas `rounding_of_inexact`, `underflow_of_inexact`, `product_of_inexact` and `quotient_of_inexact`; that the
code here is an instance of them, and the ranges, are argued and tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, final

from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.floats import FloatFormat, square_root_down, square_root_up


class NotBoundedError(Exception):
    """A rule does not apply: the format is too narrow for the numbers that may come."""


class RoundingBound(NamedTuple):
    """A quantity: where it lies, and how far its computed value may be from it."""

    low: Fraction  #: `X` is at least this, which is positive, or it is zero
    high: Fraction  #: and at most this
    roundings: int = 0  #: `k`
    absolute: Fraction = Fraction(0)  #: `a`
    zero: bool = False  #: whether `X` may be zero
    overflows: bool = False  #: whether the computed value may be infinity


@final
class RoundingBounds:
    """`OrderedArithmetic[RoundingBound]`: the operations of a format, on ranges."""

    def __init__(self, fmt: FloatFormat, constant: Callable[[float], float]) -> None:
        """Bound the operations of `fmt`, which holds `constant(x)` where a formula says `x`."""
        self._fmt, self._t, self._held, self._counts = fmt, 1 - fmt.unit_roundoff, constant, RoundingCount()

    def held(self, value: float) -> RoundingBound:
        """A number for which the format holds another, the nearest as a rule."""
        if not math.isfinite(self._held(value)):
            raise NotBoundedError
        exact, held = Fraction(value), Fraction(self._held(value))
        one = RoundingBound(exact, exact, zero=not exact)
        if abs(held - exact) <= exact * self._fmt.unit_roundoff:
            return one._replace(roundings=int(held != exact))
        return one._replace(absolute=abs(held - exact))

    def constant(self, value: float) -> RoundingBound:
        """A scalar of the formula."""
        return self.held(value)

    def add(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """`a + b`."""
        low = min([a.low + b.low, *([a.low] if b.zero else []), *([b.low] if a.zero else [])])
        absolute = (a.absolute + b.absolute) / self._t
        count = self._counts.add(a.roundings, b.roundings)
        return self._result(RoundingBound(low, a.high + b.high, count, absolute, a.zero and b.zero), a, b)

    def mul(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """`a * b`."""
        of_a, of_b = self._largest(a), self._largest(b)
        absolute = (a.absolute * of_b + b.absolute * of_a) / self._t  # both hold their own absolute error
        low, count = a.low * b.low, self._counts.mul(a.roundings, b.roundings)
        absolute += self._underflow(low, count)
        return self._result(RoundingBound(low, a.high * b.high, count, absolute, a.zero or b.zero), a, b)

    def div(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """`a / b`, of a `b` that is rounded relative to its size alone."""
        if b.zero or b.absolute:
            raise NotBoundedError
        low, count = a.low / b.high, self._counts.div(a.roundings, b.roundings)
        absolute = a.absolute / (b.low * self._t ** (b.roundings + 1)) + self._underflow(low, count)
        return self._result(RoundingBound(low, a.high / b.low, count, absolute, a.zero), a, b)

    def sqrt(self, a: RoundingBound) -> RoundingBound:
        """The square root, likewise."""
        if a.absolute:
            raise NotBoundedError
        low, high = square_root_down(a.low), square_root_up(a.high)
        return self._result(RoundingBound(low, high, self._counts.sqrt(a.roundings), zero=a.zero), a)

    def distance(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """`|a - b|` of two exact inputs: a multiple of the last place of the smaller."""
        low = max(min(a.low, b.low) * self._fmt.unit_roundoff, self._fmt.smallest_subnormal)
        count = self._counts.distance(a.roundings, b.roundings)
        return self._result(RoundingBound(low, max(a.high, b.high), count, zero=True), a, b)

    def absolute(self, a: RoundingBound) -> RoundingBound:
        """Exact."""
        return a

    def minimum(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """The smaller: never one that may be infinity, if the other is small."""
        overflows = (a.overflows or b.overflows) and not self._is_finite_least(a, b)
        worse = max(a.roundings, b.roundings), max(a.absolute, b.absolute)
        return RoundingBound(min(a.low, b.low), min(a.high, b.high), *worse, a.zero or b.zero, overflows)

    def maximum(self, a: RoundingBound, b: RoundingBound) -> RoundingBound:
        """The larger: where the ranges say which, that one."""
        for one, other in ((a, b), (b, a)):
            if self._smallest(one) >= self._largest(other) and one.low >= other.high and not one.overflows:
                return one
        low = min(a.low, b.low) if a.zero and b.zero else max(0 if a.zero else a.low, 0 if b.zero else b.low)
        worse = max(a.roundings, b.roundings), max(a.absolute, b.absolute)
        return self._result(RoundingBound(Fraction(low), max(a.high, b.high), *worse, a.zero and b.zero), a, b)

    def _largest(self, a: RoundingBound) -> Fraction:
        """At least what is computed."""
        return a.high / self._t**a.roundings + a.absolute

    def _smallest(self, a: RoundingBound) -> Fraction:
        """At most what is computed."""
        return Fraction(0) if a.zero else a.low * self._t**a.roundings - a.absolute

    def _underflow(self, low: Fraction, count: int) -> Fraction:
        """What a result of at least `low` may lose besides its rounding."""
        normal = low * self._t**count >= self._fmt.smallest_normal
        return Fraction(0) if normal else self._fmt.half_smallest_subnormal

    def _is_finite_least(self, a: RoundingBound, b: RoundingBound) -> bool:
        finite, other = (b, a) if a.overflows else (a, b)
        return other.overflows and not finite.overflows and self._largest(finite) < self._fmt.largest / 4

    def _result(self, result: RoundingBound, *operands: RoundingBound) -> RoundingBound:
        if any(operand.overflows for operand in operands):
            raise NotBoundedError
        if self._largest(result) <= self._fmt.largest:
            return result
        # Infinity stands for numbers near the largest or above it: far above a quarter of it.
        if self._t**result.roundings < Fraction(3, 4) or result.absolute > self._fmt.largest / 8:
            raise NotBoundedError
        return result._replace(overflows=True)
