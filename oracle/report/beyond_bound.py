"""Gradients just beyond the claim: whether any, up to the op model's overflow limit, violates it on some coordinate.

Claimed: a counterexample's deviation is bit-exact; "none" means that every coordinate was decided as by
`worst_case.decide` for the claim without a bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

from guarded_moments.oracle.report.followed import Followed, Stretch
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.checkpoint.encoding import constants_of
from guarded_moments.reference.checkpoint.state import GuardedTensor
from guarded_moments.reference.claim import GradientBound
from guarded_moments.reference.implementations import implementation_named


class BeyondBound:
    """Looks until one coordinate violates."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found: Followed | None = None
        self.decided = self.undecided = 0  #: coordinates
        self.limit = math.inf  #: the least overflow limit of the op models

    def add(self, tensor: GuardedTensor, stretch: Stretch) -> None:
        """Decide the claim without a bound for a stretch, if none has violated it so far."""
        unbounded = replace(stretch.claim, gradient_bound=GradientBound(math.inf))
        implementation = implementation_named(stretch.claim.implementation)
        constants = constants_of(stretch.parameter, unbounded, implementation, stretch.lr)
        self.limit = min(self.limit, constants.gradient_bound)
        if self.found is not None or math.isinf(stretch.claim.largest_of_sequence):
            return
        decisions = decide(constants, stretch.trajectories, stretch.states)
        self.decided += len(stretch.positions)
        beyond = decisions.witness.abs().double() > stretch.claim.largest_of_sequence
        # A coordinate that violates the claim itself says nothing about larger gradients.
        within = (decisions.verdict == Verdict.UNSAFE) & ~beyond
        self.undecided += int((within | (decisions.verdict == Verdict.UNDECIDED)).sum())
        unsafe = ((decisions.verdict == Verdict.UNSAFE) & beyond).nonzero().flatten()
        if len(unsafe):
            index = int(unsafe[decisions.deviation[unsafe].argmax()])
            deviation = float(decisions.deviation[index]) / stretch.lr
            self.found = Followed.of(tensor, stretch, index, float(decisions.witness[index]), deviation)
