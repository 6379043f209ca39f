"""The fast guard: a closed-form upper bound on the deviation over all gradients, a few dozen operations.

With `A = sqrt(beta2*min(v, v_hat))/b`, `B` likewise of the larger, `H(y) = 1/(sqrt(y) + eps)`, `q = sqrt(c)/b`:

    deviation <= a * ( (1-w)|m_hat - m| H(v_hat) + (1-w)|m| |H(v) - H(v_hat)| + w P ) + slack + slack_hat
    P = sup_g |g| |H - H_hat|
      <= min( G (H_A - H_B), (B-A)/q H_B, d H_A H_B/(2q), d/(3 sqrt(3) q A^2), d/(16 q eps A) ),   d = B^2 - A^2

Derivation: the lemmas of `proofs`, from `two_trajectories` to the five `third_term_*`; slack of both binary32
trajectories: `guard.slack`.

Claimed: whatever this returns, times `bound_inflation`, is at least the deviation of the bit-exact op model for every
binary32 `g` with `|g| <= G`.  The rounding of this evaluation itself is counted by running the same source in
`RoundingCount`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard.constants import TINY, GuardConstants
from guarded_moments.reference.guard.slack import LARGEST_MOMENT, LARGEST_SECOND_MOMENT

T = TypeVar("T")


def trajectory_slack(op: OrderedArithmetic[T], constants: GuardConstants, m: T, reciprocal: T) -> T:
    """What binary32 rounding can move one update by, over the step size; the floor is added by the caller.

    Args:
        op: a number domain.
        constants: of the tensor.
        m: the first moment, in units of the gradient.
        reciprocal: `H0 = 1/(sqrt(radicand*v) + eps)` of the same state.
    """
    of_moment = op.mul(op.constant(constants.slack_moment), op.absolute(m))
    proportional = op.mul(op.add(of_moment, op.constant(constants.slack_reciprocal)), reciprocal)
    return op.add(proportional, op.constant(constants.slack_gradient))


def third_term(
    op: OrderedArithmetic[T],
    constants: GuardConstants,
    radicand_gap: T,
    root_gap: T,
    low: T,
    reciprocal_low: T,
    reciprocal_high: T,
) -> T:
    """`P`, a bound on `sup_g |g| |H(b_hat + c g^2) - H(b + c g^2)|`: the least of five."""
    constant, mul, div = op.constant, op.mul, op.div
    both = mul(reciprocal_low, reciprocal_high)
    by_gradient = mul(constant(constants.gradient_bound), mul(root_gap, both))
    by_gap = mul(mul(root_gap, reciprocal_high), constant(constants.gap_cap))
    by_radicand = mul(mul(radicand_gap, both), constant(constants.radicand_cap))
    # With low = 0 the last two do not apply; dividing by TINY makes them larger than every other bound.
    base = op.maximum(low, constant(TINY))
    by_root = div(mul(radicand_gap, constant(constants.root_cap)), op.maximum(mul(low, low), constant(TINY)))
    by_eps = div(mul(radicand_gap, constant(constants.eps_cap)), base)
    return op.minimum(
        op.minimum(op.minimum(by_gradient, by_gap), op.minimum(by_radicand, by_root)),
        by_eps,
    )


class BoundTerms(NamedTuple, Generic[T]):
    """The four terms of the bound, each over the step size (so in learning rates over the bias correction)."""

    first_moment: T  #: `(1-w)|m_hat - m| H(v_hat)`
    second_moment: T  #: `(1-w)|m| |H(v) - H(v_hat)|`
    gradient: T  #: `w P`
    rounding: T  #: what binary32 may move both updates by, without the floor


def bound_terms(op: OrderedArithmetic[T], constants: GuardConstants, m: T, v: T, m_hat: T, v_hat: T) -> BoundTerms[T]:
    """The terms of the bound for one coordinate's two states.

    Args:
        op: a number domain.
        constants: of the tensor.
        m: native first moment.
        v: native second moment, non-negative.
        m_hat: recovered first moment.
        v_hat: recovered second moment, non-negative.
    """
    constant, add, mul, div = op.constant, op.add, op.mul, op.div
    radicand, eps, one = constant(constants.radicand), constant(constants.eps), constant(1.0)
    root, root_hat = op.sqrt(mul(radicand, v)), op.sqrt(mul(radicand, v_hat))
    reciprocal, reciprocal_hat = div(one, add(root, eps)), div(one, add(root_hat, eps))
    low, high = op.minimum(root, root_hat), op.maximum(root, root_hat)
    reciprocal_low, reciprocal_high = op.maximum(reciprocal, reciprocal_hat), op.minimum(reciprocal, reciprocal_hat)

    radicand_gap = mul(radicand, op.distance(v_hat, v))
    root_gap = div(radicand_gap, op.maximum(add(low, high), constant(TINY)))
    reciprocal_gap = mul(root_gap, mul(reciprocal_low, reciprocal_high))

    complement = constant(constants.complement)
    supremum = third_term(op, constants, radicand_gap, root_gap, low, reciprocal_low, reciprocal_high)
    return BoundTerms(
        first_moment=mul(mul(complement, op.distance(m_hat, m)), reciprocal_hat),
        second_moment=mul(mul(complement, op.absolute(m)), reciprocal_gap),
        gradient=mul(constant(constants.w), supremum),
        rounding=add(
            trajectory_slack(op, constants, m, reciprocal), trajectory_slack(op, constants, m_hat, reciprocal_hat)
        ),
    )


def deviation_bound(op: OrderedArithmetic[T], constants: GuardConstants, m: T, v: T, m_hat: T, v_hat: T) -> T:
    """The bound, not yet inflated by its own rounding; in units of the parameter.  Arguments as `bound_terms`."""
    first, second, third, rounding = bound_terms(op, constants, m, v, m_hat, v_hat)
    total = op.add(op.add(first, second), op.add(third, rounding))
    floor = op.constant(constants.slack_floor)
    return op.add(op.mul(op.constant(constants.step), total), op.add(floor, floor))


@cache
def bound_inflation() -> float:
    """The factor that makes an evaluated `deviation_bound` an upper bound: its own roundings, counted."""
    ones = GuardConstants(*[1.0] * len(GuardConstants._fields))
    count = deviation_bound(RoundingCount(), ones, *[RoundingCount.exact] * 4)
    return round_up(inflation(count + 1))  # and one for the product with this factor


def in_domain(m: Tensor, v: Tensor) -> Tensor:
    """Where a state is one the guard's theorem speaks about: finite, not huge, `v` not negative (nor minus zero)."""
    return (
        (m.abs() <= LARGEST_MOMENT)
        & (v >= 0)
        & (v <= LARGEST_SECOND_MOMENT)
        & ~torch.signbit(v)
        & ~((m == 0) & torch.signbit(m))
    )


def closed_form_guard(constants: GuardConstants, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """Where the closed form guarantees the claim: a bool tensor.

    A coordinate whose two states are the same value is accepted outright: the op model is a function.

    Args:
        constants: of the tensor.
        m: native first moments, float32, shape (n,).
        v: native second moments, float32, shape (n,).
        m_hat: recovered first moments, float32, shape (n,).
        v_hat: recovered second moments, float32, shape (n,).
    """
    op = TorchBinary64(m.device)
    bound = deviation_bound(op, constants, m.double(), v.double(), m_hat.double(), v_hat.double())
    within = bound * bound_inflation() <= constants.threshold
    same = (m == m_hat) & (v == v_hat)
    return (within | same) & in_domain(m, v) & in_domain(m_hat, v_hat)


def closed_form_deviation(constants: GuardConstants, m: float, v: float, m_hat: float, v_hat: float) -> float:
    """The inflated bound of one coordinate, in units of the parameter; NaN outside the domain."""
    state = [torch.tensor([x], dtype=torch.float64) for x in (m, v, m_hat, v_hat)]
    bound = float(deviation_bound(TorchBinary64(), constants, *state)) * bound_inflation()
    return bound if v >= 0 and v_hat >= 0 else math.nan
