"""What follows about later updates where the claim is about the first, and about the sum of all updates.

*The factor.*  A guarantee of the first update for every gradient says more than it seems to: scaled as in `reduction`,
a later update is the first with its two parts weighted otherwise, so that its deviation is at most

    sqrt((1 - q**j)/(1 - q)) * kappa_j/kappa_1,    q = beta1**2/beta2,   kappa_j = step_j*root_j

times the tolerance: 2.3 at worst for betas 0.9 and 0.999, late in training.  Epsilon is larger in those units at later
updates, and can undo a cancellation by which the first update hides an error of the first moment: where that alone
exceeds the tolerance (`first_moment_alone`), both together stand for the tolerance.

*The drift.*  The sum of the deviations of the first K updates is at most K times the largest, and at most

    kappa * (r (1-r**K)/(1-r) * (|m_hat - m|/sqrt(v_hat) + C |m|/sqrt(v))  +  C (w/sqrt(c))/(1-r) * sqrt(K/2))
    C = |rho - 1|/(sqrt(rm) (1 + sqrt(rm))),   rho = v_hat/v,   rm = min(1, rho),   r = beta1/sqrt(beta2)

since what an error of `v` does shrinks as new gradients fill it: the drift grows like the root of K, not like K.

Claimed, in exact arithmetic and under one sequence of gradients that both runs share: both, derived on paper; the
closed form of `unbounded` that the drift is capped by is proved.  Evaluated in binary64, and multiplied with a factor
that is far above what a few dozen roundings lose.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from guarded_moments.reference.floats import round_up, square_root_up
from guarded_moments.reference.guard.closed_form import lifted
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.horizon.constants import Run
from guarded_moments.reference.horizon.unbounded import deviation_of_every, unbounded_constants

#: Far above the rounding of the formulas here: some fifty operations, each off by 2**-53.
_EVALUATION = 1 + 2.0**-40


def later_factor(run: Run) -> float:
    """How many times the tolerance of the first update any later one may deviate; see the module.

    Raises:
        UnsupportedError: `beta1**2 >= beta2`: then it grows with the number of updates.
    """
    first, bound = run.real(1), unbounded_constants(run)
    ratio = first.complement**2 / first.beta2
    return round_up(square_root_up(1 / (1 - ratio)) * Fraction(bound.step) / (first.step * first.root))


def first_moment_alone(constants: GuardConstants[float], states: States) -> Tensor:
    """What the error of the first moment alone moves the first update by, units of the parameter; float64 (n,)."""
    k = lifted(constants)
    reciprocal = 1 / ((k.radicand * states.v_hat.double()).sqrt() + k.eps)
    return k.step * k.complement * (states.m_hat.double() - states.m.double()).abs() * reciprocal * _EVALUATION


def drift(run: Run, states: States, updates: int) -> Tensor:
    """At least the sum of the deviations of that many updates, in units of the parameter; float64 (n,).

    Args:
        run: the run.
        states: coordinates in the guard's domain, float32, shape (n,).
        updates: `K`.

    Raises:
        UnsupportedError: `beta1**2 >= beta2`.
    """
    bound, real = unbounded_constants(run), run.real(1)
    r = float(real.complement) / math.sqrt(real.beta2)
    remembered = r * (1 - r**updates) / (1 - r)
    m, v, m_hat, v_hat = (moment.double() for moment in states)
    least = torch.minimum(torch.ones_like(v), v_hat / v)
    error = (v_hat - v).abs() / v / (least.sqrt() * (1 + least.sqrt()))
    of_moments = remembered * ((m_hat - m).abs() / v_hat.sqrt() + error * m.abs() / v.sqrt())
    of_gradients = error * float(real.w) / math.sqrt(real.c) / (1 - r) * math.sqrt(updates / 2)
    summed = bound.step * (of_moments + of_gradients) * _EVALUATION
    each = updates * deviation_of_every(bound, states)
    return torch.where(summed.isfinite(), torch.minimum(summed, each), each)
