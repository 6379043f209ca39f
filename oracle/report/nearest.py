"""The coordinates nearest the tolerance, over any number of tensors: a running list of the largest deviations.

Claimed: a coordinate is left out only where no gradient of the claim moves it further, by more than a part in
`1/GAP` and the rounding slack, than the last one of the list.  Trusted: as for `worst_case.largest`.
"""

from __future__ import annotations

import torch

from guarded_moments.oracle.report.followed import Followed, Stretch
from guarded_moments.oracle.worst_case.decision import BLOCK, survivors
from guarded_moments.reference.checkpoint.state import GuardedTensor
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import CellBounds, first_partition

LISTED = 10
GAP = 1e-4  #: relative


class Nearest:
    """The `LISTED` coordinates with the largest deviations so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found: list[Followed] = []

    def add(self, tensor: GuardedTensor, stretch: Stretch) -> None:
        """Look at every coordinate of a stretch."""
        states, constants = stretch.states, stretch.constants
        # A first look raises the bar, so that few coordinates need a second.
        for begin in range(0, len(states.m), BLOCK):
            block = states.slice(begin, begin + BLOCK)
            look = first_partition(
                constants, CellBounds(constants, block), lambda best: torch.full_like(best, torch.inf)
            )
            most = look.best.topk(min(LISTED, len(look.best))).indices
            self._consider(tensor, stretch, begin + most, look.best_gradient[most].float())
        floor = self._floor(stretch)
        left = survivors(
            constants, states, lambda block: torch.full_like(block.m, floor / constants.step, dtype=torch.float64)
        )
        for begin in range(0, len(left), BLOCK):
            index = left[begin : begin + BLOCK]
            found = enclose(constants, states.select(index), relative_gap=GAP, ignore_below=self._floor(stretch))
            self._consider(tensor, stretch, index, found.gradient.float())

    def _floor(self, stretch: Stretch) -> float:
        """What the last of a full list deviates by, in units of the parameter."""
        return self.found[-1].deviation * stretch.lr if len(self.found) == LISTED else 0.0

    def _consider(self, tensor: GuardedTensor, stretch: Stretch, index: torch.Tensor, gradient: torch.Tensor) -> None:
        if len(index) == 0:
            return
        deviation = stretch.trajectories.deviations(stretch.states.select(index), gradient) / stretch.lr
        known = {(one.stretch.where, one.position): one for one in self.found}
        for rank in deviation.topk(min(LISTED, len(index))).indices.tolist():
            if len(self.found) == LISTED and float(deviation[rank]) <= self.found[-1].deviation:
                break
            one = Followed.of(tensor, stretch, int(index[rank]), float(gradient[rank]), float(deviation[rank]))
            before = known.get((stretch.where, one.position))
            if before is None or one.deviation > before.deviation:
                known[stretch.where, one.position] = one
        ordered = sorted(known.values(), key=lambda one: (-one.deviation, one.name))
        self.found = ordered[:LISTED]
