"""The guard's constants for later updates: one set for each, in the shape of those for the first.

    kernel's constants at each step -> formula -> reduction to one update, slack -> `GuardConstants`

Guard and search of `reference.guard` take them as they are.  `over` gives constants that stand for a range of updates
at once: the closed form grows with every one of them but `eps`, with which it falls.

Claimed: where the closed form or the search accepts with the constants of update `j`, no sequence of `j` gradients of
the claim moves the two binary32 runs' `j`-th updates further apart than the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.claim import LARGEST_GRADIENT, Claim, Tolerance
from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import BINARY32, round_down, round_up, square_root_down, square_root_up
from guarded_moments.reference.guard.binary64_range import require_normal
from guarded_moments.reference.guard.constants import GuardConstants, exact_constants
from guarded_moments.reference.guard.overflow import (
    LARGEST_MOMENT,
    LARGEST_SECOND_MOMENT,
    RangeArithmetic,
    require_all_finite,
)
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.horizon.accumulation import slack_of_later
from guarded_moments.reference.horizon.carrying import OwnError, errors_of
from guarded_moments.reference.horizon.reduction import reduced
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import Implementation

#: The number at which a binary32 step counter sticks.
LAST_STEP = 2**24
#: Moments after up to a thousand updates by gradients up to `LARGEST_GRADIENT`, from a state of the guard's domain:
#: an average of such numbers, and a sum of such squares, each off by some thousand roundings.
_LARGEST_MOMENT_LATER, _LARGEST_SECOND_MOMENT_LATER = 2 * LARGEST_MOMENT, 2 * LARGEST_SECOND_MOMENT
#: The search takes gradients as binary32 numbers, and so what stands for them.
_LARGEST_SHARED = 2.0**126


@dataclass(frozen=True)
class Run:
    """A run that is resumed: what of it decides about its updates."""

    implementation: Implementation
    hyperparameters: Hyperparameters
    next_step: float  #: number of the first update after recovery
    lr: float  #: of these updates, and what the tolerance counts in

    def scalars(self, update: int) -> Scalars[float]:
        """The kernel's constants at update number `update` after recovery, from 1."""
        return self.implementation.scalars(replace(self.hyperparameters, lr=self.lr), self.next_step + update - 1)

    def threshold(self, tolerance: Tolerance) -> float:
        """The deviation allowed, in units of the parameter, rounded down."""
        return round_down(Fraction(tolerance.value) * Fraction(self.lr))

    def real(self, update: int) -> RealUpdate:
        """The formula that they make."""
        scalars = self.scalars(update)
        reals = {real_update(model, scalars) for model in self.implementation.models}
        if len(reals) != 1:  # all op models of one tensor approximate one formula
            raise UnsupportedError(f"the kernel constants {scalars} are not ones that the guard covers")
        return reals.pop()


def later_constants(claim: Claim, run: Run) -> Sequence[GuardConstants[float]]:
    """The constants of updates 1 to the last of the claim's horizon, which is a number.

    Those of the first are in other units than `guard_constants` gives, and mean the same.

    Args:
        claim: its gradient bound may be above `LARGEST_GRADIENT`; gradients up to that are then covered.
        run: the run.

    Raises:
        InvalidClaimError: the gradient bound is finite and above `LARGEST_GRADIENT`.
        UnsupportedError: the hyperparameters leave nothing that could be bounded for so many updates; says why.
    """
    if claim.horizon.updates is None:
        raise InvalidClaimError("all updates have no constants one by one")
    return _later_constants(claim, run)


@lru_cache(maxsize=64)  # tensors of one param_group share all of it
def _later_constants(claim: Claim, run: Run) -> tuple[GuardConstants[float], ...]:
    bound, last = claim.gradient_bound.value, claim.horizon.updates or 1
    if LARGEST_GRADIENT < bound < math.inf:
        msg = (
            f"grad-bound {bound:g} is above {LARGEST_GRADIENT:g}, the largest for a horizon of {last} updates; use inf"
        )
        raise InvalidClaimError(msg)
    bound = min(bound, LARGEST_GRADIENT)
    require_linear(run)
    require_steps(run, last)
    reals = [run.real(update) for update in range(1, last + 1)]
    _require_constant(reals)
    _require_finite(run, last, bound)
    owns = [_own_error(run, update, real) for update, real in enumerate(reals, start=1)]
    stand_ins = list(reduced(reals))
    if Fraction(bound) * stand_ins[-1].reach > Fraction(_LARGEST_SHARED):
        beta2 = run.hyperparameters.beta2
        raise UnsupportedError(f"horizon {last} is too long for betas[1] {beta2!r}: of v nothing is left by then")
    found = []
    for stand_in, slack in zip(stand_ins, slack_of_later(zip(owns, reals, stand_ins, strict=True)), strict=False):
        if slack is None:
            break
        exact = exact_constants(stand_in.real, slack, square_root_up)
        rounded = GuardConstants(*(round_up(value) for value in exact))
        shared = _binary32_above(round_up(Fraction(bound) * stand_in.reach))
        found.append(rounded._replace(gradient_bound=shared, threshold=run.threshold(claim.tolerance)))
    if len(found) < last:
        raise UnsupportedError(f"horizon {last} is too long: after {len(found)} updates rounding has no bound")
    # What is evaluated depends on the exponents of the constants alone, and few updates differ in those.
    for constants in {tuple(math.frexp(value)[1] for value in one): one for one in found}.values():
        require_normal(constants)
    return tuple(found)


def require_linear(run: Run) -> None:
    """Refuse amsgrad.

    Raises:
        UnsupportedError: that is it.
    """
    if run.hyperparameters.amsgrad:
        msg = (
            "amsgrad: the largest second moment so far is no sum that forgets, so that nothing is known of later "
            "updates; the horizon is 1"
        )
        raise UnsupportedError(msg)


def require_steps(run: Run, updates: int) -> None:
    """Refuse updates whose numbers a binary32 counter cannot hold.

    Raises:
        UnsupportedError: there are such.
    """
    if run.next_step + updates - 1 > LAST_STEP:
        msg = f"update {run.next_step + updates - 1:.0f} is within the horizon: torch's step counter sticks at 2**24"
        raise UnsupportedError(msg)


def _require_constant(reals: Sequence[RealUpdate]) -> None:
    """Refuse what the reduction does not take: `beta2` of 0, or moments that are not weighted alike at each step."""
    if reals[0].beta2 <= 0:
        raise UnsupportedError("betas[1] is 0: a horizon beyond the first update needs a v that remembers")
    if len({(real.w, real.c, real.beta2) for real in reals}) != 1:
        raise UnsupportedError("the weights of gradients change from one update to the next: no horizon covers that")


def _require_finite(run: Run, updates: int, bound: float) -> None:
    """Refuse a run of which any operation of these updates may overflow."""
    largest = _LARGEST_MOMENT_LATER, _LARGEST_SECOND_MOMENT_LATER
    scalars = [run.scalars(update) for update in range(1, updates + 1)]
    for model in run.implementation.models:
        op = RangeArithmetic(Fraction(bound), BINARY32, *largest)
        require_all_finite(model, run.hyperparameters.options, scalars, op)


def _own_error(run: Run, update: int, real: RealUpdate) -> OwnError:
    options, u, n = run.hyperparameters.options, BINARY32.unit_roundoff, BINARY32.half_smallest_subnormal
    scalars, models = run.scalars(update), run.implementation.models
    own = errors_of(models, options, real, u, n, square_root_up, square_root_down)
    if own is None:
        msg = f"eps {scalars.eps!r} is so small that rounding alone may move an update by any amount"
        raise UnsupportedError(msg)
    return own


def _binary32_above(value: float) -> float:
    nearest = torch.tensor(value, dtype=torch.float64).float()
    return float(nearest if nearest.double() >= value else torch.nextafter(nearest, torch.tensor(torch.inf)))


def over(constants: Sequence[GuardConstants[float]]) -> GuardConstants[float]:
    """Constants with which the closed form is at least that of each of several updates of one run."""
    largest = GuardConstants(*(max(values) for values in zip(*constants, strict=True)))
    return largest._replace(eps=min(one.eps for one in constants), threshold=min(one.threshold for one in constants))
