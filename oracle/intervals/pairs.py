"""The Adam step on pairs of intervals: both trajectories over a cell of gradients, and their difference.

A pair encloses, for every gradient of a cell, the binary32 value of the native trajectory, that of the recovered one,
and the recovered minus the native.  An operation takes the exact real results of both, and their exact difference by
a rule that keeps the cancellation between them (`^` marks the recovered, `d` the difference):

    a^ + b^ - (a + b) = da + db           a^ b^ - a b = da b^ + a db      (fma: the product, then the sum)
    a^/b^ - a/b = (da - (a/b) db) / b^    sqrt(a^) - sqrt(a) = da / (sqrt(a) + sqrt(a^))

and then adds both roundings.  Where a rule divides, its result is cut to what the two values' own enclosures allow.
Where an operand's difference is None, both trajectories hold the same float; an operation on such operands is one
computation, rounded once, and its difference is None again.

Claimed: the enclosures hold for every op model built from these operations.  Trusted: `mpf`, `rounding`.
"""

from __future__ import annotations

from typing import NamedTuple, final

from guarded_moments.oracle.intervals import mpf
from guarded_moments.oracle.intervals.mpf import Interval, UnboundedError
from guarded_moments.oracle.intervals.rounding import Rounding, error, rounded


class Pair(NamedTuple):
    """One quantity of both trajectories."""

    native: Interval
    recovered: Interval
    difference: Interval | None  #: recovered minus native; None: the same float in both


def pair_of(native: float, recovered: float) -> Pair:
    """Two binary32 numbers, exactly."""
    one, other = mpf.thin(native), mpf.thin(recovered)
    return Pair(one, other, None if native == recovered else mpf.sub(other, one))


def shared(interval: Interval) -> Pair:
    """One unknown binary32 number of `interval`, the same in both trajectories."""
    return Pair(interval, interval, None)


@final
class PairArithmetic:
    """Rounded binary32 operations on pairs.

    Each method raises `UnboundedError` where a member may overflow, or a divisor may be zero.
    """

    def constant(self, value: float) -> Pair:
        """A scalar of the kernel, shared."""
        return shared(mpf.thin(value))

    def add(self, a: Pair, b: Pair) -> Pair:
        """`a + b`."""
        return _sum(a, b, Rounding.SUM)

    def sub(self, a: Pair, b: Pair) -> Pair:
        """`a - b`."""
        return _sum(a, self.negate(b), Rounding.SUM)

    def mul(self, a: Pair, b: Pair) -> Pair:
        """`a * b`."""
        return _round(_product(a, b), Rounding.PRODUCT)

    def product(self, a: Pair, b: Pair) -> Pair:
        """`a * b`, not rounded."""
        return _product(a, b)

    def fma(self, a: Pair, b: Pair, c: Pair) -> Pair:
        """`a * b + c`, rounded once; with one object for `b` and `c` it is `(a + 1) * b`, which varies less."""
        if b is c:
            return _round(_product(_exact_sum(a, _ONE), b), Rounding.PRODUCT)
        return _sum(_product(a, b), c, Rounding.PRODUCT)

    def div(self, a: Pair, b: Pair) -> Pair:
        """`a / b` for `b` of one sign."""
        if b.native[1][0]:
            a, b = self.negate(a), self.negate(b)
        native = mpf.div(a.native, b.native)
        if a.difference is None and b.difference is None:
            return _round(shared(native), Rounding.PRODUCT)
        recovered = mpf.div(a.recovered, b.recovered)
        change = a.difference
        if b.difference is not None:
            pull = mpf.mul(native, b.difference)
            change = mpf.negate(pull) if change is None else mpf.sub(change, pull)
        difference = None
        if change is not None:
            difference = mpf.intersect(mpf.div(change, b.recovered), mpf.sub(recovered, native))
        return _round(Pair(native, recovered, difference), Rounding.PRODUCT)

    def sqrt(self, a: Pair) -> Pair:
        """The correctly rounded root of `a >= 0`."""
        return _root(a, Rounding.SUM)

    def platform_sqrt(self, a: Pair) -> Pair:
        """Any root within one unit in the last place of the correctly rounded one."""
        return _root(a, Rounding.PLATFORM_ROOT)

    def negate(self, a: Pair) -> Pair:
        """`-a`; exact."""
        native = mpf.negate(a.native)
        if a.difference is None:
            return shared(native)
        return Pair(native, mpf.negate(a.recovered), mpf.negate(a.difference))

    def select_less(self, a: Pair, b: Pair, if_less: Pair, otherwise: Pair) -> Pair:
        """`if_less` where `a < b`; only where both trajectories decide alike over the whole cell.

        Raises:
            UnboundedError: they do not.
        """
        if mpf.exceeds(b.native[0], a.native[1]) and mpf.exceeds(b.recovered[0], a.recovered[1]):
            return if_less
        if mpf.exceeds(b.native[1], a.native[0]) or mpf.exceeds(b.recovered[1], a.recovered[0]):
            raise UnboundedError
        return otherwise

    def select_nan(self, a: Pair, if_nan: Pair, otherwise: Pair) -> Pair:  # noqa: ARG002 - the protocol's signature
        """`otherwise`: no member is NaN."""
        return otherwise


_ONE = shared(mpf.thin(1.0))


def _sum(a: Pair, b: Pair, rounding: Rounding) -> Pair:
    return _round(_exact_sum(a, b), rounding)


def _exact_sum(a: Pair, b: Pair) -> Pair:
    native = mpf.add(a.native, b.native)
    if a.difference is None and b.difference is None:
        return shared(native)
    if a.difference is None or b.difference is None:
        difference = b.difference if a.difference is None else a.difference
    else:
        difference = mpf.add(a.difference, b.difference)
    return Pair(native, mpf.add(a.recovered, b.recovered), difference)


def _product(a: Pair, b: Pair) -> Pair:
    native = mpf.mul(a.native, b.native)
    if a.difference is None and b.difference is None:
        return shared(native)
    recovered = mpf.mul(a.recovered, b.recovered)
    if a.difference is None:
        return Pair(native, recovered, None if b.difference is None else mpf.mul(a.native, b.difference))
    difference = mpf.mul(a.difference, b.recovered)
    if b.difference is not None:
        difference = mpf.add(difference, mpf.mul(a.native, b.difference))
    return Pair(native, recovered, difference)


def _root(a: Pair, rounding: Rounding) -> Pair:
    native = mpf.sqrt(a.native)
    if a.difference is None:
        return _round(shared(native), rounding)
    recovered = mpf.sqrt(a.recovered)
    both = mpf.add(native, recovered)
    # Where both may be zero the rule would divide by zero, and what the two roots allow is all that is known.
    difference = mpf.sub(recovered, native)
    if both[0][1]:
        difference = mpf.intersect(difference, mpf.div(a.difference, both))
    return _round(Pair(native, recovered, difference), rounding)


def _round(exact: Pair, rounding: Rounding) -> Pair:
    native = rounded(exact.native, rounding)
    if exact.difference is None:
        return shared(native)
    recovered = rounded(exact.recovered, rounding)
    low, high = exact.difference
    errors = mpf.add_up(error(mpf.magnitude(exact.native), rounding), error(mpf.magnitude(exact.recovered), rounding))
    return Pair(native, recovered, (mpf.sub_down(low, errors), mpf.add_up(high, errors)))
