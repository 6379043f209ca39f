"""The later updates of a part: whether the claim's horizon holds, and what follows where the claim ends before them.

What the first update's decision calls SAFE is put to the guard of later updates, with the search.  What that does not
accept is run through the op model under the worst sequences of a few updates: where a run exceeds the tolerance by
more than rounding can do (for all updates, which are claimed in exact arithmetic), or at all (for a number of updates,
in binary32), the coordinate is UNSAFE, with the update at which it is; else UNDECIDED.

Claimed: SAFE means what `reference.horizon.guard` claims; UNSAFE comes with a sequence of gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.oracle.later_updates import deviations, worst_sequence
from guarded_moments.oracle.worst_case import Decisions, Verdict
from guarded_moments.reference.claim import Claim, Horizon
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.guard.search import CellBounds, States, first_partition, slack_of
from guarded_moments.reference.horizon import LaterGuard, Run, deviation_of_every, later_constants, unbounded_constants
from guarded_moments.reference.horizon.afterwards import drift, first_moment_alone, later_factor
from guarded_moments.reference.op_models import OpModel

#: Updates at which a coordinate is tried whose later updates are not accepted; and the last where all are claimed.
TRIED = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_LAST_TRIED = 100
#: Coordinates that are tried; the rest is undecided.
_TRIED_AT_MOST = 1 << 12
#: Updates that the drift is told of where the claim does not say how many.
DRIFT_UPDATES = 1000


@dataclass(frozen=True)
class Later:
    """What of a claim and a run decides about a tensor's later updates."""

    claim: Claim
    run: Run
    guard: LaterGuard | None  #: None where the claim is about the first update

    @property
    def drift_updates(self) -> int:
        """The number of updates that `bounds` sums over."""
        several = self.claim.horizon not in {Horizon.FIRST, Horizon.ALL}
        return (self.claim.horizon.updates or DRIFT_UPDATES) if several else DRIFT_UPDATES

    @property
    def factor(self) -> float | None:
        """How many times the tolerance a later update may deviate, whatever guard of the first update accepted.

        None where that follows from nothing: the claim is about gradients up to a bound, or no factor is for all.
        """
        if not math.isinf(self.claim.gradient_bound.value):
            return None
        try:
            return later_factor(self.run)
        except UnsupportedError:
            return None

    def accepted(self, states: States) -> Tensor:
        """Where the later updates of the claim are guaranteed: a bool tensor."""
        if self.guard is None:
            return torch.ones(len(states.m), dtype=torch.bool)
        return self.guard.accepts(states, exact=True)

    def decide(self, model: OpModel, states: States, decisions: Decisions) -> Tensor:
        """Narrow, in place, what was decided of the first update.

        Returns:
            The update at which each UNSAFE coordinate violates; 1 elsewhere; int64 (n,).
        """
        at = torch.ones(len(states.m), dtype=torch.int64)
        safe = (decisions.verdict == Verdict.SAFE).nonzero().flatten()
        doubtful = safe[~self.accepted(states.select(safe))]
        decisions.verdict[doubtful] = Verdict.UNDECIDED
        tried = doubtful[:_TRIED_AT_MOST]
        for update, constants in self._to_try():
            left = tried[decisions.verdict[tried] == Verdict.UNDECIDED]
            if len(left) == 0:
                break
            found, gradient = self._attained(model, constants, update, states.select(left))
            allowed = self._allowed(constants, states.select(left))
            unsafe = left[found > allowed]
            decisions.verdict[unsafe] = Verdict.UNSAFE
            decisions.deviation[unsafe], decisions.witness[unsafe] = found[found > allowed], gradient[found > allowed]
            at[unsafe] = update
        return at

    def closest(self, model: OpModel, states: States) -> tuple[int, int, float, float] | None:
        """The coordinate that comes nearest to the tolerance at the last update, as far as a first look tells.

        Returns:
            Its place, the update, the sequence's last gradient, and the deviation attained in units of the parameter;
            None where nothing is claimed of one last update, or there are no coordinates.
        """
        last = self.claim.horizon.updates
        if self.guard is None or last is None or len(states.m) == 0:
            return None
        constants = self.guard.updates[-1]
        look = first_partition(constants, CellBounds(constants, states), lambda best: torch.full_like(best, torch.inf))
        place = int(look.best.argmax())
        found, gradient = self._attained(model, constants, last, states.select(torch.tensor([place])))
        return place, last, float(gradient), float(found)

    def bounds(self, states: States) -> tuple[float | None, float | None]:
        """The largest deviation of any later update in exact arithmetic, and the largest sum of the first updates'.

        Both upper bounds, over all coordinates, in units of the parameter; None where there are none.
        """
        try:
            unbounded = unbounded_constants(self.run)
        except UnsupportedError:
            return None, None
        each, total = deviation_of_every(unbounded, states), drift(self.run, states, self.drift_updates)
        return float(each.amax()) if len(each) else 0.0, float(total.amax()) if len(total) else 0.0

    def first_moment_alone(self, constants: GuardConstants[float], states: States) -> float:
        """The most that the error of any first moment alone moves the first update by, in units of the parameter."""
        return float(first_moment_alone(constants, states).amax()) if len(states.m) else 0.0

    def _to_try(self) -> list[tuple[int, GuardConstants[float]]]:
        last = self.claim.horizon.updates or _LAST_TRIED
        claim = Claim(self.claim.tolerance, self.claim.gradient_bound, self.claim.implementation, Horizon(last))
        try:
            constants = later_constants(claim, self.run)
        except UnsupportedError:  # of a claim about all updates, whose runs cannot be tried this way
            return []
        updates = dict.fromkeys((last, *(update for update in TRIED if update < last)))
        return [(update, constants[update - 1]) for update in updates]

    def _attained(
        self, model: OpModel, constants: GuardConstants[float], update: int, states: States
    ) -> tuple[Tensor, Tensor]:
        gradients = worst_sequence(constants, self.run, states, update, self.claim.largest_of_sequence)
        return deviations(self.run, model, states, gradients)[-1], gradients[-1]

    def _allowed(self, constants: GuardConstants[float], states: States) -> Tensor:
        allowed = torch.full((len(states.m),), constants.threshold, dtype=torch.float64)
        return allowed + slack_of(constants, states) if self.claim.horizon == Horizon.ALL else allowed
