"""Which coordinates keep a claim about more than the first update.

For a number of updates, the closed form with constants that stand for many updates at once accepts most coordinates;
what it rejects is put to fewer updates at once, in the end to each alone, where the exact guard decides.  The last
update is asked first: it refutes most of what any of them refutes.  For every update, one closed form decides.

Claimed: of a coordinate that `accepts`, no update from the second to the last of the horizon exceeds the tolerance, in
the arithmetic of the claim.  The first update is the business of `reference.guard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.reference.claim import Claim, Horizon
from guarded_moments.reference.guard.closed_form import closed_form_guard, in_domain
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.exact import exact_guard
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.horizon.constants import Run, later_constants, over
from guarded_moments.reference.horizon.unbounded import deviation_of_every, unbounded_constants

#: The closed form adds the two parts of a deviation that lie on a circle: on average that is so much too large.
_CIRCLE_WIDENS = 1.25


@dataclass(frozen=True)
class LaterGuard:
    """The guard of updates 2 and following, for one tensor."""

    updates: Sequence[GuardConstants[float]]  #: in binary32, from the first; empty where all are covered
    unbounded: GuardConstants[float] | None  #: of every update, in exact arithmetic
    threshold: float  #: the deviation allowed, in units of the parameter
    fitting: GuardConstants[float]  #: of one update that codes are best chosen for; nothing is claimed with them

    def accepts(self, states: States, *, exact: bool) -> Tensor:
        """Where the claim is kept: a bool tensor, (n,).

        Args:
            states: any coordinates, float32, shape (n,).
            exact: whether the search decides what the closed form rejects; of no effect where all updates are covered.
        """
        covered = in_domain(states.m, states.v) & in_domain(states.m_hat, states.v_hat)
        if self.unbounded is not None:
            same = (states.m == states.m_hat) & (states.v == states.v_hat)
            return covered & (same | (deviation_of_every(self.unbounded, states) <= self.threshold))
        accepted = covered.clone()
        index = covered.nonzero().flatten()
        last = len(self.updates) - 1
        index = index[self._at(last, states.select(index), exact=exact)]
        accepted[:] = False
        if last > 1:
            index = index[self._between(1, last, states.select(index), exact=exact)]
        accepted[index] = True
        return accepted

    def _at(self, place: int, states: States, *, exact: bool) -> Tensor:
        guard = exact_guard if exact else closed_form_guard
        return guard(self.updates[place], *states)

    def _between(self, first: int, end: int, states: States, *, exact: bool) -> Tensor:
        """Where every update in `[first, end)` keeps the claim."""
        if len(states.m) == 0:
            return torch.zeros(0, dtype=torch.bool)
        if end - first == 1:
            return self._at(first, states, exact=exact)
        accepted = closed_form_guard(over(self.updates[first:end]), *states)
        left = (~accepted).nonzero().flatten()
        middle = (first + end) // 2
        for half in ((middle, end), (first, middle)):  # deviations grow for long
            left = left[self._between(*half, states.select(left), exact=exact)]
        accepted[left] = True
        return accepted


def later_guard(claim: Claim, run: Run) -> LaterGuard | None:
    """The guard of a claim's later updates; None where it is about the first alone.

    Raises:
        InvalidClaimError: as `later_constants`.
        UnsupportedError: the hyperparameters leave nothing that could be bounded; says why.
    """
    if claim.horizon == Horizon.FIRST:
        return None
    threshold = run.threshold(claim.tolerance)
    if claim.horizon.updates is None:
        every = unbounded_constants(run)
        return LaterGuard((), every, threshold, every._replace(threshold=threshold * _CIRCLE_WIDENS))
    updates = later_constants(claim, run)
    return LaterGuard(updates, None, threshold, updates[-1])
