"""What decides about the coordinates of a part that follow one op model: the search, or with amsgrad the closed form.

Claimed: what `worst_case.Verdict` claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from guarded_moments.oracle.trajectories import AmsgradTrajectories, Trajectories
from guarded_moments.oracle.worst_case import (
    MAX_ENUMERATED,
    Decisions,
    Verdict,
    Worst,
    decide,
    decide_with_amsgrad,
    largest_deviation,
    largest_with_amsgrad,
)
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.op_models import OpModel

if TYPE_CHECKING:
    from guarded_moments.oracle.audit.part import Part


def judge_of(part: Part, model: OpModel) -> Searched | WithAmsgrad:
    """The one for a part."""
    return Searched(part, model) if part.v_max is None else WithAmsgrad(part, model, part.v_max)


class Searched:
    """Decides coordinates that follow one op model, by search and then by every gradient."""

    def __init__(self, part: Part, model: OpModel) -> None:
        """Judge coordinates of a part."""
        self._part, self._model = part, model
        self._trajectories = Trajectories(model, part.options, part.scalars)

    def decide(self, states: States, _index: Tensor, max_enumerated: int = MAX_ENUMERATED) -> Decisions:
        """One verdict each; where all gradients may be run, none is left undecided."""
        part = self._part
        decisions = decide(part.constants, self._trajectories, states, max_enumerated, compiled=part.compiled)
        if max_enumerated == MAX_ENUMERATED and bool((decisions.verdict == Verdict.UNDECIDED).any()):
            self._settle(states, decisions)
        return decisions

    def _settle(self, states: States, decisions: Decisions) -> None:
        # Imported here: compiling takes seconds, and an audit rarely needs it.
        from guarded_moments.oracle.exhaustive import CompiledTrajectories  # noqa: PLC0415 - as said
        from guarded_moments.oracle.worst_case.supremum import settle  # noqa: PLC0415 - as said

        part = self._part
        settle(part.constants, lambda: CompiledTrajectories(self._model, part.options, part.scalars), states, decisions)

    def largest(self, states: States, known: float, _decisions: Decisions) -> Worst:
        """The largest deviation, where it exceeds what is known."""
        part = self._part
        return largest_deviation(part.constants, self._trajectories, states, known=known, compiled=part.compiled)


class WithAmsgrad:
    """Decides coordinates that follow one op model with amsgrad, by the closed form."""

    def __init__(self, part: Part, model: OpModel, v_max: Tensor) -> None:
        """Judge coordinates of a part that has these third moments."""
        self._constants, self._v_max = part.constants, v_max
        self._trajectories = AmsgradTrajectories(model, part.options, part.scalars)

    def decide(self, states: States, index: Tensor, _max_enumerated: int = 0) -> Decisions:
        """One verdict each, for the coordinates at `index` of the part."""
        return decide_with_amsgrad(self._constants, self._trajectories, states, self._v_max[index])

    def largest(self, states: States, _known: float, decisions: Decisions) -> Worst:
        """The largest deviation seen."""
        return largest_with_amsgrad(self._constants, states, decisions)
