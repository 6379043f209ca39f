"""The Adam step on pairs of intervals: both trajectories over a cell of gradients, and their difference.

A pair encloses, for every gradient of a cell, the binary32 value of the native trajectory, that of the recovered one,
and the recovered minus the native.  An operation takes the exact real results of both, and their exact difference by
a rule that keeps the cancellation between them (`^` marks the recovered, `d` the difference):

    a^ + b^ - (a + b) = da + db           a^ b^ - a b = da b^ + a db      (fma: the product, then the sum)
    a^/b^ - a/b = (da - (a/b) db) / b^    sqrt(a^) - sqrt(a) = da / (sqrt(a) + sqrt(a^))

and then adds both roundings.  Where a rule divides, its result is cut to what the two values' own enclosures allow.
Where an operand's difference is None, both trajectories hold the same float; an operation on such operands is one
computation, rounded once, and its difference is None again.

Claimed: the enclosures hold for every op model built from these operations.  Trusted: the intervals' operations.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, final

from guarded_moments.oracle.intervals.protocol import Intervals, T, UnboundedError
from guarded_moments.oracle.intervals.rounding import Rounding


class Pair(NamedTuple, Generic[T]):
    """One quantity of both trajectories."""

    native: T
    recovered: T
    difference: T | None  #: recovered minus native; None: the same float in both


def shared(interval: T) -> Pair[T]:
    """One unknown binary32 number of `interval`, the same in both trajectories."""
    return Pair(interval, interval, None)


@final
class PairArithmetic(Generic[T]):
    """Rounded binary32 operations on pairs of intervals.

    Each method of `Arithmetic` raises `UnboundedError` where a member may overflow, or a divisor may be zero.
    """

    def __init__(self, intervals: Intervals[T]) -> None:
        """Fix what the pairs are made of."""
        self._intervals = intervals
        self._one = self.constant(1.0)

    def pair_of(self, native: float, recovered: float) -> Pair[T]:
        """Two binary32 numbers, exactly."""
        one, other = self._intervals.thin(native), self._intervals.thin(recovered)
        return Pair(one, other, None if native == recovered else self._intervals.sub(other, one))

    def constant(self, value: float) -> Pair[T]:
        """A scalar of the kernel, shared."""
        return shared(self._intervals.thin(value))

    def add(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        """`a + b`."""
        return self._sum(a, b, Rounding.SUM)

    def sub(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        """`a - b`."""
        return self._sum(a, self.negate(b), Rounding.SUM)

    def mul(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        """`a * b`."""
        return self._round(self._product(a, b), Rounding.PRODUCT)

    def product(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        """`a * b`, not rounded."""
        return self._product(a, b)

    def fma(self, a: Pair[T], b: Pair[T], c: Pair[T]) -> Pair[T]:
        """`a * b + c`, rounded once; with one object for `b` and `c` it is `(a + 1) * b`, which varies less."""
        if b is c:
            return self._round(self._product(self._exact_sum(a, self._one), b), Rounding.PRODUCT)
        return self._sum(self._product(a, b), c, Rounding.PRODUCT)

    def div(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        """`a / b` for `b` of one sign."""
        if self._intervals.is_negative(b.native):
            a, b = self.negate(a), self.negate(b)
        native = self._intervals.div(a.native, b.native)
        if a.difference is None and b.difference is None:
            return self._round(shared(native), Rounding.PRODUCT)
        recovered = self._intervals.div(a.recovered, b.recovered)
        change = a.difference
        if b.difference is not None:
            pull = self._intervals.mul(native, b.difference)
            change = self._intervals.negate(pull) if change is None else self._intervals.sub(change, pull)
        difference = None
        if change is not None:
            difference = self._intervals.intersect(
                self._intervals.div(change, b.recovered), self._intervals.sub(recovered, native)
            )
        return self._round(Pair(native, recovered, difference), Rounding.PRODUCT)

    def sqrt(self, a: Pair[T]) -> Pair[T]:
        """The correctly rounded root of `a >= 0`."""
        return self._root(a, Rounding.SUM)

    def platform_sqrt(self, a: Pair[T]) -> Pair[T]:
        """Any root within one unit in the last place of the correctly rounded one."""
        return self._root(a, Rounding.PLATFORM_ROOT)

    def negate(self, a: Pair[T]) -> Pair[T]:
        """`-a`; exact."""
        native = self._intervals.negate(a.native)
        if a.difference is None:
            return shared(native)
        return Pair(native, self._intervals.negate(a.recovered), self._intervals.negate(a.difference))

    def select_less(self, a: Pair[T], b: Pair[T], if_less: Pair[T], otherwise: Pair[T]) -> Pair[T]:
        """`if_less` where `a < b`; only where both trajectories decide alike over the whole cell.

        Raises:
            UnboundedError: they do not.
        """
        if self._intervals.is_less(a.native, b.native) and self._intervals.is_less(a.recovered, b.recovered):
            return if_less
        if self._intervals.is_at_most(b.native, a.native) and self._intervals.is_at_most(b.recovered, a.recovered):
            return otherwise
        raise UnboundedError

    def select_nan(self, a: Pair[T], if_nan: Pair[T], otherwise: Pair[T]) -> Pair[T]:  # noqa: ARG002 - the protocol's signature
        """`otherwise`: no member is NaN."""
        return otherwise

    def _sum(self, a: Pair[T], b: Pair[T], rounding: Rounding) -> Pair[T]:
        return self._round(self._exact_sum(a, b), rounding)

    def _exact_sum(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        native = self._intervals.add(a.native, b.native)
        if a.difference is None and b.difference is None:
            return shared(native)
        if a.difference is None or b.difference is None:
            difference = b.difference if a.difference is None else a.difference
        else:
            difference = self._intervals.add(a.difference, b.difference)
        return Pair(native, self._intervals.add(a.recovered, b.recovered), difference)

    def _product(self, a: Pair[T], b: Pair[T]) -> Pair[T]:
        native = self._intervals.mul(a.native, b.native)
        if a.difference is None and b.difference is None:
            return shared(native)
        recovered = self._intervals.mul(a.recovered, b.recovered)
        if a.difference is None:
            return Pair(
                native, recovered, None if b.difference is None else self._intervals.mul(a.native, b.difference)
            )
        difference = self._intervals.mul(a.difference, b.recovered)
        if b.difference is not None:
            difference = self._intervals.add(difference, self._intervals.mul(a.native, b.difference))
        return Pair(native, recovered, difference)

    def _root(self, a: Pair[T], rounding: Rounding) -> Pair[T]:
        native = self._intervals.sqrt(a.native)
        if a.difference is None:
            return self._round(shared(native), rounding)
        recovered = self._intervals.sqrt(a.recovered)
        both = self._intervals.add(native, recovered)
        # Where both may be zero the rule would divide by zero, and what the two roots allow is all that is known.
        difference = self._intervals.sub(recovered, native)
        if self._intervals.is_positive(both):
            difference = self._intervals.intersect(difference, self._intervals.div(a.difference, both))
        return self._round(Pair(native, recovered, difference), rounding)

    def _round(self, exact: Pair[T], rounding: Rounding) -> Pair[T]:
        native = self._intervals.rounded(exact.native, rounding)
        if exact.difference is None:
            return shared(native)
        recovered = self._intervals.rounded(exact.recovered, rounding)
        difference = self._intervals.with_errors(exact.difference, exact.native, exact.recovered, rounding)
        return Pair(native, recovered, difference)
