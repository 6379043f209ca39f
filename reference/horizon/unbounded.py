"""Every update at once, in exact arithmetic: a closed form that no number of updates enters.

In the units of `reduction`, `r**2 + (w_j/w_inf)**2 = 1` with `w_inf = w/sqrt(1 - q)`, `q = beta1**2/beta2 < 1`: the two
shares of a deviation lie on a circle, so that for every update and every sequence of gradients

    |U_hat - U|  <=  kappa * sqrt( (|m_hat - m| H(v_hat) + |m| |H(v) - H(v_hat)|)**2 + (w_inf P)**2 )
    H(v) = 1/(sqrt(v) + eps),    kappa = sup_j step_j*root_j,    eps the least of any update

with `P`, at least `sup_y y |H(v + c*y*y) - H(v_hat + c*y*y)|`, as in the guard of one update: the three terms are those
of `guard.closed_form`, from its own source.

Claimed: `make_every_bound`, times its inflation, is at least the deviation of any update in exact arithmetic with the
kernel's own constants (`proofs.horizon`).  Nothing is said about the rounding of these updates.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import TypeVar

from torch import Tensor

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, round_to_binary32, round_up, square_root_up
from guarded_moments.reference.guard.binary64_range import ExponentRange, cases
from guarded_moments.reference.guard.closed_form import lifted, make_bound_terms
from guarded_moments.reference.guard.constants import GuardConstants, counted_constants, exact_constants
from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.guard.slack import RoundingSlack
from guarded_moments.reference.horizon.constants import Run, require_linear

T = TypeVar("T")

#: Updates whose constants are computed one by one for `kappa`, at most, and the power of `beta1` that ends it.
_ONE_BY_ONE = 4096
_SETTLED = Fraction(1, 2**30)
#: A kernel's constants follow their formula up to a few units in the last place of binary32.
_CONSTANTS_WITHIN = 1 + Fraction(1, 2**20)
#: What stands for any gradient: too large for the bound by gradients to be the least, too small to overflow.
_ANY_GRADIENT = 2.0**400


def make_every_bound(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], T]:
    """Build `bound(constants, m, v, m_hat, v_hat)`, not yet inflated by its own rounding; in units of the parameter."""
    add, mul, sqrt = op.add, op.mul, op.sqrt
    bound_terms = make_bound_terms(op, jit)

    def every_bound(k: GuardConstants[T], m: T, v: T, m_hat: T, v_hat: T) -> T:
        terms = bound_terms(k, m, v, m_hat, v_hat)
        of_moments = add(terms.first_moment, terms.second_moment)
        return mul(k.step, sqrt(add(mul(of_moments, of_moments), mul(terms.gradient, terms.gradient))))

    result: Callable[[GuardConstants[T], T, T, T, T], T] = jit(every_bound)
    return result


@cache
def every_inflation() -> float:
    """The factor that makes an evaluated bound an upper bound: its own roundings, counted."""
    op = RoundingCount()
    return round_up(inflation(make_every_bound(op)(counted_constants(), *[op.exact] * 4) + 1))


def deviation_of_every(constants: GuardConstants[float], states: States) -> Tensor:
    """At least the deviation of every update in exact arithmetic, in units of the parameter; float64 (n,).

    Args:
        constants: of `unbounded_constants`.
        states: coordinates in the guard's domain, float32, shape (n,).
    """
    bound = make_every_bound(TorchBinary64(states.m.device))
    return bound(lifted(constants), *(moment.double() for moment in states)) * every_inflation()


@lru_cache(maxsize=64)  # tensors of one param_group share all of it
def unbounded_constants(run: Run) -> GuardConstants[float]:
    """The constants of one update in which both parts of a deviation are as large as in any; no threshold, no slack.

    Raises:
        UnsupportedError: `beta1**2 >= beta2`, so that no bound holds for every update; or `eps` is 0; or amsgrad.
    """
    require_linear(run)
    real, nothing = run.real(1), Fraction(0)
    if real.beta2 <= real.complement**2:
        beta1, beta2 = run.hyperparameters.beta1, run.hyperparameters.beta2
        msg = (
            f"betas {beta1!r}, {beta2!r}: beta1**2 is not below beta2, so that the deviation grows with the number of "
            "updates; give a horizon that is a number"
        )
        raise UnsupportedError(msg)
    if real.eps == 0:
        raise UnsupportedError("eps is 0 in binary32: the update is unbounded where v is 0, so nothing is guaranteed")
    largest = RealUpdate(
        w=real.w * square_root_up(1 / (1 - real.complement**2 / real.beta2)),
        complement=Fraction(1),
        c=real.c,
        beta2=Fraction(1),
        root=Fraction(1),
        eps=real.eps * real.root * square_root_up(1 / real.beta2) / _CONSTANTS_WITHIN,
        step=_kappa(run),
    )
    exact = exact_constants(largest, RoundingSlack(nothing, nothing, nothing, nothing), square_root_up)
    constants = GuardConstants(*(round_up(value) for value in exact))._replace(gradient_bound=_ANY_GRADIENT)
    _require_normal(constants)
    return constants


def _require_normal(constants: GuardConstants[float]) -> None:
    """Refuse a run of which the bound may leave the normal range of binary64."""
    of = cases(1.0, BINARY32, from_zero=True)
    op = ExponentRange(of.order)
    held = GuardConstants(*(op.constant(value) for value in constants))
    op.finite(make_every_bound(op)(held, of.m, of.v, of.m_hat, of.v_hat))


def _kappa(run: Run) -> Fraction:
    """At least `step*root` of every update: `lr*sqrt(1 - beta2**t)/(1 - beta1**t)`, as the kernel rounds its constants.

    One by one while the first bias correction matters; from then on the second one is at most 1.
    """
    beta1 = max(run.hyperparameters.beta1, round_to_binary32(run.hyperparameters.beta1))
    largest, update = Fraction(0), 1
    while True:
        real = run.real(update)
        largest = max(largest, real.step * real.root)
        left = Fraction(beta1 ** (run.next_step + update))
        if left <= _SETTLED or update == _ONE_BY_ONE:
            return max(largest, Fraction(run.lr) / (1 - left) * _CONSTANTS_WITHIN)
        update += 1
