"""What the tolerance leaves for the deviation of the exact updates: the cutoff of a search over cells.

The bit-exact deviation is at most `step*|N|` plus the rounding slack of both trajectories (`guard.slack`).  So a cell
whose `|N|` is at most

    ((threshold - slack*inflation) / step) / inflation

is safe.  The inflation makes up for every rounding of this evaluation, the last three operations included.

Claimed: where a bound of `|N|`, as `cells` or `slopes` evaluate it, is at most `make_allowance`'s value, no gradient of
its cell moves the two bit-exact updates further apart than the threshold (`proofs.cleared`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic, SignedArithmetic
from guarded_moments.reference.guard.closed_form import make_trajectory_slack
from guarded_moments.reference.guard.constants import GuardConstants

T = TypeVar("T")


def make_update_slack(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], T]:
    """Build `slack(constants, m, v, m_hat, v_hat)`: how far the bit-exact deviation may be from `step*|N|`.

    In units of the parameter, not yet inflated by its own rounding; `v` and `v_hat` are not negative.
    """
    add, mul, div, sqrt = op.add, op.mul, op.div, op.sqrt
    one, trajectory_slack = op.constant(1.0), make_trajectory_slack(op, jit)

    def update_slack(k: GuardConstants[T], m: T, v: T, m_hat: T, v_hat: T) -> T:
        native = trajectory_slack(k, m, div(one, add(sqrt(mul(k.radicand, v)), k.eps)))
        recovered = trajectory_slack(k, m_hat, div(one, add(sqrt(mul(k.radicand, v_hat)), k.eps)))
        return add(mul(k.step, add(native, recovered)), add(k.slack_floor, k.slack_floor))

    result: Callable[[GuardConstants[T], T, T, T, T], T] = jit(update_slack)
    return result


def make_allowance(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T, T], T]:
    """Build `allowance(constants, inflation, m, v, m_hat, v_hat)`: the largest `|N|` that is certain to be safe.

    May be negative: then no cell is.
    """
    sub, mul, div = op.sub, op.mul, op.div
    update_slack = make_update_slack(op, jit)

    def allowance(k: GuardConstants[T], inflation: T, m: T, v: T, m_hat: T, v_hat: T) -> T:
        slack = mul(update_slack(k, m, v, m_hat, v_hat), inflation)
        return div(div(sub(k.threshold, slack), k.step), inflation)

    result: Callable[[GuardConstants[T], T, T, T, T, T], T] = jit(allowance)
    return result
