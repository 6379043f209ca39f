"""How far the bit-exact deviation can be from the real one inside a cell of gradients.

`guard.slack` bounds the rounding of an update over all gradients at once.  Before that last step of its chain the
bound depends on the gradient, in its notation:

    |U_fl - U| <= a * ((moment*|m| + reciprocal) * H(g) + gradient * q|g| H(g)) + floor,     q|g| H(g) <= 1

`H` decreases and `|g| H(g)` increases with `|g|`, so the ends of a cell bound both products.

Claimed: `make_deviation_upper`, times `deviation_inflation`, is at least the bit-exact deviation at every gradient of
the cell, given an upper bound on the real one (`proofs.cell_deviation` derives it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard.constants import GuardConstants, counted_constants
from guarded_moments.reference.guard.slopes import Point, make_point

T = TypeVar("T")


def make_deviation_upper(
    op: OrderedArithmetic[T], jit: Jit = as_is
) -> Callable[[GuardConstants[T], T, T, T, Point[T], Point[T]], T]:
    """Build `deviation_upper(constants, upper, m, m_hat, low, high)`, in units of the parameter.

    `upper` bounds `|N|` on the cell between `low` and `high`.
    """
    add, mul, div, absolute = op.add, op.mul, op.div, op.absolute

    def slack(k: GuardConstants[T], m: T, first: T, last: T, largest: T) -> T:
        """Of one trajectory, over the step size; `first` and `last` are its reciprocals at the ends."""
        proportional = mul(add(mul(k.slack_moment, absolute(m)), k.slack_reciprocal), first)
        return add(proportional, mul(k.slack_gradient, div(mul(largest, last), k.gap_cap)))

    slack_of = jit(slack)

    def deviation_upper(k: GuardConstants[T], upper: T, m: T, m_hat: T, low: Point[T], high: Point[T]) -> T:
        native = slack_of(k, m, low.reciprocal, high.reciprocal, high.end.g)
        recovered = slack_of(k, m_hat, low.end.reciprocal, high.end.reciprocal, high.end.g)
        return add(mul(k.step, add(upper, add(native, recovered))), add(k.slack_floor, k.slack_floor))

    result: Callable[[GuardConstants[T], T, T, T, Point[T], Point[T]], T] = jit(deviation_upper)
    return result


@cache
def deviation_roundings() -> int:
    """How often an evaluated `deviation_upper` is rounded."""
    op, k = RoundingCount(), counted_constants()
    gap = op.mul(k.radicand, op.distance(op.exact, op.exact))
    point = make_point(op)(k, op.exact, op.exact, gap, op.exact)
    return make_deviation_upper(op)(k, op.exact, op.exact, op.exact, point, point)


@cache
def deviation_inflation() -> float:
    """The factor that makes an evaluated `deviation_upper` an upper bound: its own roundings, counted."""
    return round_up(inflation(deviation_roundings() + 1))  # and one for the product with this factor
