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

from collections.abc import Callable
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard.constants import TINY, GuardConstants, counted_constants
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT

T = TypeVar("T")


class BoundTerms(NamedTuple, Generic[T]):
    """The four terms of the bound, each over the step size (so in learning rates over the bias correction)."""

    first_moment: T  #: `(1-w)|m_hat - m| H(v_hat)`
    second_moment: T  #: `(1-w)|m| |H(v) - H(v_hat)|`
    gradient: T  #: `w P`
    rounding: T  #: what binary32 may move both updates by, without the floor


def make_trajectory_slack(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T], T]:
    """Build `slack(constants, m, H0)`: what binary32 can move one update by, over the step size, without the floor.

    `H0 = 1/(sqrt(radicand*v) + eps)` is that of the same state as `m`.
    """
    add, mul, absolute = op.add, op.mul, op.absolute

    def trajectory_slack(k: GuardConstants[T], m: T, reciprocal: T) -> T:
        proportional = mul(add(mul(k.slack_moment, absolute(m)), k.slack_reciprocal), reciprocal)
        return add(proportional, k.slack_gradient)

    result: Callable[[GuardConstants[T], T, T], T] = jit(trajectory_slack)
    return result


def make_third_term(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[..., T]:
    """Build `P(constants, d, B-A, A, H_A, H_B)`, a bound on `sup_g |g| |H_hat - H|`: the least of five."""
    mul, div, minimum, maximum = op.mul, op.div, op.minimum, op.maximum
    tiny = op.constant(TINY)

    def third_term(k: GuardConstants[T], gap: T, root_gap: T, low: T, reciprocal_low: T, reciprocal_high: T) -> T:
        both = mul(reciprocal_low, reciprocal_high)
        by_gradient = mul(k.gradient_bound, mul(root_gap, both))
        by_root_gap = mul(mul(root_gap, reciprocal_high), k.gap_cap)
        by_radicand = mul(mul(gap, both), k.radicand_cap)
        # With A = 0 the last two do not apply; dividing by TINY makes them larger than every other bound.
        by_root = div(mul(gap, k.root_cap), maximum(mul(low, low), tiny))
        by_eps = div(mul(gap, k.eps_cap), maximum(low, tiny))
        return minimum(minimum(minimum(by_gradient, by_root_gap), minimum(by_radicand, by_root)), by_eps)

    result: Callable[..., T] = jit(third_term)
    return result


def make_bound_terms(
    op: OrderedArithmetic[T], jit: Jit = as_is
) -> Callable[[GuardConstants[T], T, T, T, T], BoundTerms[T]]:
    """Build `terms(constants, m, v, m_hat, v_hat)` for one coordinate's two states, `v` and `v_hat` non-negative."""
    add, mul, div, sqrt, distance, absolute = op.add, op.mul, op.div, op.sqrt, op.distance, op.absolute
    minimum, maximum = op.minimum, op.maximum
    one, tiny = op.constant(1.0), op.constant(TINY)
    trajectory_slack, third_term = make_trajectory_slack(op, jit), make_third_term(op, jit)

    def bound_terms(k: GuardConstants[T], m: T, v: T, m_hat: T, v_hat: T) -> BoundTerms[T]:
        root, root_hat = sqrt(mul(k.radicand, v)), sqrt(mul(k.radicand, v_hat))
        reciprocal, reciprocal_hat = div(one, add(root, k.eps)), div(one, add(root_hat, k.eps))
        low, high = minimum(root, root_hat), maximum(root, root_hat)
        reciprocal_low, reciprocal_high = maximum(reciprocal, reciprocal_hat), minimum(reciprocal, reciprocal_hat)
        gap = mul(k.radicand, distance(v_hat, v))
        root_gap = div(gap, maximum(add(low, high), tiny))
        reciprocal_gap = mul(root_gap, mul(reciprocal_low, reciprocal_high))
        first = mul(mul(k.complement, distance(m_hat, m)), reciprocal_hat)
        second = mul(mul(k.complement, absolute(m)), reciprocal_gap)
        third = mul(k.w, third_term(k, gap, root_gap, low, reciprocal_low, reciprocal_high))
        rounding = add(trajectory_slack(k, m, reciprocal), trajectory_slack(k, m_hat, reciprocal_hat))
        return BoundTerms(first, second, third, rounding)

    result: Callable[[GuardConstants[T], T, T, T, T], BoundTerms[T]] = jit(bound_terms)
    return result


def make_deviation_bound(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], T]:
    """Build `bound(constants, m, v, m_hat, v_hat)`, not yet inflated by its own rounding; in units of the parameter."""
    add, mul = op.add, op.mul
    bound_terms = make_bound_terms(op, jit)

    def deviation_bound(k: GuardConstants[T], m: T, v: T, m_hat: T, v_hat: T) -> T:
        terms = bound_terms(k, m, v, m_hat, v_hat)
        total = add(
            add(terms.first_moment, terms.second_moment),
            add(terms.gradient, terms.rounding),
        )
        return add(mul(k.step, total), add(k.slack_floor, k.slack_floor))

    result: Callable[[GuardConstants[T], T, T, T, T], T] = jit(deviation_bound)
    return result


@cache
def bound_inflation() -> float:
    """The factor that makes an evaluated `deviation_bound` an upper bound: its own roundings, counted."""
    op = RoundingCount()
    count = make_deviation_bound(op)(counted_constants(), *[op.exact] * 4)
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


def closed_form_guard(constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """Where the closed form guarantees the claim: a bool tensor.

    A coordinate whose two states are the same value is accepted outright: the op model is a function.

    Args:
        constants: of the tensor.
        m: native first moments, float32, shape (n,).
        v: native second moments, float32, shape (n,).
        m_hat: recovered first moments, float32, shape (n,).
        v_hat: recovered second moments, float32, shape (n,).
    """
    return lifted_guard(lifted(constants), bound_inflation(), m, v, m_hat, v_hat)


def lifted_guard(
    constants: GuardConstants[Tensor], inflation: float | Tensor, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor
) -> Tensor:
    """The same with constants as `lifted` gives them, and `bound_inflation()`: for callers that compile it."""
    within = _bounds(constants, inflation, m, v, m_hat, v_hat) <= constants.threshold
    same = (m == m_hat) & (v == v_hat)
    return (within | same) & in_domain(m, v) & in_domain(m_hat, v_hat)


def _bounds(
    constants: GuardConstants[Tensor], inflation: float | Tensor, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor
) -> Tensor:
    deviation_bound = make_deviation_bound(TorchBinary64(m.device))
    return deviation_bound(constants, m.double(), v.double(), m_hat.double(), v_hat.double()) * inflation


def closed_form_deviation(
    constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor
) -> Tensor:
    """The inflated bound of coordinates in the guard's domain, float64, in units of the parameter.

    Args:
        constants: of the tensor.
        m: native first moments, float32, shape (n,).
        v: native second moments.
        m_hat: recovered first moments.
        v_hat: recovered second moments.
    """
    return _bounds(lifted(constants), bound_inflation(), m, v, m_hat, v_hat)


def lifted(constants: GuardConstants[float]) -> GuardConstants[Tensor]:
    """The constants as 0-d float64 tensors."""
    return GuardConstants(*(torch.tensor(value, dtype=torch.float64) for value in constants))
