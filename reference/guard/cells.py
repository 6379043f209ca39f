"""Bounds on the deviation over a whole cell of gradients, in real arithmetic evaluated in binary64.

For one coordinate, over the step size, and with the negative gradients folded onto the positive by the sign of `w g`:

    N(g) = (1-w)(m_hat - m) H_hat(g) + ((1-w) m + w g) (H_hat(g) - H(g))
    H(g) = 1/(sqrt(radicand*v + curvature*g*g) + eps)

On a cell `low <= |g| <= high` the reciprocal `H_hat` decreases, and `H_hat - H` keeps its sign and shrinks, so that
the end points bound both products with the cancellation between them kept.  Towards infinity `|w g (H_hat - H)|` is at
most `(w/q) |H_hat - H|(low) / H_hat(low)`, because `q |g| <= sqrt(...)`.

Claimed: `make_uppers` is at least `|N(g)|` for every `g` of the cell, and `make_lowers` at most `|N|` at one, their own
rounding included.  Nothing here knows
about binary32 rounding of the updates: callers add the slack of both trajectories, or ask the bit-exact op model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic, SignedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.floats import BINARY64
from guarded_moments.reference.guard.constants import TINY, GuardConstants, counted_constants

T = TypeVar("T")


class Terms(NamedTuple, Generic[T]):
    """What of a coordinate does not depend on the gradient."""

    v: T
    v_hat: T
    shift: T  #: `(1-w)(m_hat - m)`
    pull: T  #: `(1-w) m`
    gap: T  #: `radicand*(v - v_hat)`, signed: `H_hat > H` exactly where `v_hat < v`


class End(NamedTuple, Generic[T]):
    """An end of a cell: a gradient's magnitude, and the coordinate's reciprocals there."""

    g: T
    reciprocal: T  #: `H_hat(g)`
    difference: T  #: `H_hat(g) - H(g)`


def make_terms(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], Terms[T]]:
    """Build `terms(constants, m, v, m_hat, v_hat)`."""
    mul, sub = op.mul, op.sub

    def terms(k: GuardConstants[T], m: T, v: T, m_hat: T, v_hat: T) -> Terms[T]:
        shift, pull = mul(k.complement, sub(m_hat, m)), mul(k.complement, m)
        return Terms(v, v_hat, shift, pull, mul(k.radicand, sub(v, v_hat)))

    result: Callable[[GuardConstants[T], T, T, T, T], Terms[T]] = jit(terms)
    return result


def make_roots(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T], tuple[T, T]]:
    """Build `roots(constants, v, v_hat, g)`: `sqrt(radicand*v + curvature*g*g)` of both states."""
    add, mul, sqrt = op.add, op.mul, op.sqrt

    def roots(k: GuardConstants[T], v: T, v_hat: T, g: T) -> tuple[T, T]:
        bend = mul(k.curvature, mul(g, g))
        return sqrt(add(mul(k.radicand, v), bend)), sqrt(add(mul(k.radicand, v_hat), bend))

    result: Callable[[GuardConstants[T], T, T, T], tuple[T, T]] = jit(roots)
    return result


def make_end_of_roots(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], End[T]]:
    """Build `end(constants, gap, g, root, root_hat)`: both reciprocals at a gradient, free of cancellation."""
    add, mul, div, maximum = op.add, op.mul, op.div, op.maximum
    one, tiny = op.constant(1.0), op.constant(TINY)

    def end_of_roots(k: GuardConstants[T], gap: T, g: T, root: T, root_hat: T) -> End[T]:
        reciprocal_hat = div(one, add(root_hat, k.eps))
        both = div(reciprocal_hat, add(root, k.eps))
        return End(g, reciprocal_hat, div(mul(gap, both), maximum(add(root, root_hat), tiny)))

    result: Callable[[GuardConstants[T], T, T, T, T], End[T]] = jit(end_of_roots)
    return result


def make_end(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], End[T]]:
    """Build `end(constants, v, v_hat, gap, g)`: the end of a cell at a gradient."""
    roots, end_of_roots = make_roots(op, jit), make_end_of_roots(op, jit)

    def end(k: GuardConstants[T], v: T, v_hat: T, gap: T, g: T) -> End[T]:
        root, root_hat = roots(k, v, v_hat, g)
        return end_of_roots(k, gap, g, root, root_hat)

    result: Callable[[GuardConstants[T], T, T, T, T], End[T]] = jit(end)
    return result


def make_value(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, End[T]], tuple[T, T]]:
    """Build `value(constants, shift, pull, end)`: `|N|` at `+g` and at `-g`, as evaluated, without slack."""
    add, sub, mul, absolute = op.add, op.sub, op.mul, op.absolute

    def value(k: GuardConstants[T], shift: T, pull: T, end: End[T]) -> tuple[T, T]:
        base = add(mul(shift, end.reciprocal), mul(pull, end.difference))
        slope = mul(mul(k.w, end.g), end.difference)
        return absolute(add(base, slope)), absolute(sub(base, slope))

    result: Callable[[GuardConstants[T], T, T, End[T]], tuple[T, T]] = jit(value)
    return result


def make_lowers(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, End[T]], tuple[T, T]]:
    """Build `lowers(constants, shift, pull, end)`: at most `|N|` at `+g` and at `-g`; may be negative."""
    add, sub, mul, absolute = op.add, op.sub, op.mul, op.absolute
    value, relative_error = make_value(op, jit), op.constant(_relative_error())

    def lowers(k: GuardConstants[T], shift: T, pull: T, end: End[T]) -> tuple[T, T]:
        plus, minus = value(k, shift, pull, end)
        difference = absolute(end.difference)
        start = add(absolute(mul(shift, end.reciprocal)), mul(absolute(pull), difference))
        rounding = mul(relative_error, add(start, mul(mul(k.w, end.g), difference)))
        return sub(plus, rounding), sub(minus, rounding)

    result: Callable[[GuardConstants[T], T, T, End[T]], tuple[T, T]] = jit(lowers)
    return result


def make_uppers(
    op: SignedArithmetic[T], jit: Jit = as_is
) -> Callable[[GuardConstants[T], T, T, End[T], End[T]], tuple[T, T]]:
    """Build `uppers(constants, shift, pull, low, high)`: at least `|N(g)|` for every `g` and every `-g` of the cell.

    The cell is `low.g <= g <= high.g`.
    """
    add, sub, mul, div, absolute = op.add, op.sub, op.mul, op.div, op.absolute
    minimum, maximum, negate = op.minimum, op.maximum, op.negate
    relative_error, inflation = op.constant(_relative_error()), op.constant(1 + _relative_error())

    def extent(first_low: T, first_high: T, near: T, far: T, low: T, high: T) -> T:
        """The largest magnitude of a sum of two products, each at its ends."""
        a, b, c, d = mul(near, low), mul(near, high), mul(far, low), mul(far, high)
        most = add(maximum(first_low, first_high), maximum(maximum(a, b), maximum(c, d)))
        least = add(minimum(first_low, first_high), minimum(minimum(a, b), minimum(c, d)))
        return maximum(most, negate(least))

    one_sign = jit(extent)

    def uppers(k: GuardConstants[T], shift: T, pull: T, low: End[T], high: End[T]) -> tuple[T, T]:
        first_low, first_high = mul(shift, low.reciprocal), mul(shift, high.reciprocal)
        near, far = mul(k.w, low.g), mul(k.w, high.g)
        plus = one_sign(first_low, first_high, add(pull, near), add(pull, far), low.difference, high.difference)
        minus = one_sign(first_low, first_high, sub(pull, near), sub(pull, far), low.difference, high.difference)
        # The magnitudes that entered, for the rounding of this evaluation, and the bound that holds to infinity.
        difference = absolute(low.difference)
        start = add(absolute(first_low), mul(absolute(pull), difference))
        rounding = mul(relative_error, add(start, mul(far, difference)))
        tail = mul(inflation, add(start, div(mul(mul(k.w, k.gap_cap), difference), low.reciprocal)))
        return minimum(add(plus, rounding), tail), minimum(add(minus, rounding), tail)

    result: Callable[[GuardConstants[T], T, T, End[T], End[T]], tuple[T, T]] = jit(uppers)
    return result


def make_upper(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, End[T], End[T]], T]:
    """Build `upper(constants, shift, pull, low, high)`: at least `|N(g)|` for every `low.g <= |g| <= high.g`."""
    maximum, uppers = op.maximum, make_uppers(op, jit)

    def upper(k: GuardConstants[T], shift: T, pull: T, low: End[T], high: End[T]) -> T:
        plus, minus = uppers(k, shift, pull, low, high)
        return maximum(plus, minus)

    result: Callable[[GuardConstants[T], T, T, End[T], End[T]], T] = jit(upper)
    return result


@cache
def _relative_error() -> float:
    """What each product of `upper` may err by, relative to the magnitudes in it: counted from the sources above."""
    op, k = RoundingCount(), counted_constants()
    gap = op.mul(k.radicand, op.distance(op.exact, op.exact))
    end = make_end(op)(k, op.exact, op.exact, gap, op.exact)
    first = op.mul(op.mul(k.complement, op.distance(op.exact, op.exact)), end.reciprocal)
    weight = op.add(op.mul(k.complement, op.exact), op.mul(k.w, end.g))
    second = op.mul(weight, end.difference)
    tail = op.div(op.mul(op.mul(k.w, k.gap_cap), end.difference), end.reciprocal)
    count = op.add(first, op.add(second, tail))
    return 2 * count * float(BINARY64.unit_roundoff)  # twice: (1-u)**-k <= 1 + 2ku for these k
