"""REC-5: the claim with amsgrad, where the root is of the larger of the second moment and a third one."""

from __future__ import annotations

from functools import partial

import torch

from guarded_moments.oracle.conformance.errors import answer_of
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import ordinary_states
from guarded_moments.oracle.conformance.optimizer_states import state_dict
from guarded_moments.oracle.conformance.recovery import Case, require_first_updates, round_trip
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.optimizer_state import LARGEST

#: Enough coordinates, and a tolerance, at which many are accepted in Adam alone: what catches a guard that is Adam's.
_CASE = Case(399, 0.03, 1.0, {"lr": 1e-3, "amsgrad": True, "foreach": False})
_COUNT = 8209
#: How many have a third moment above the second, and by how much.
_HALF, _ABOVE = 0.5, 3.0


def first_updates_with_amsgrad(trial: Trial) -> None:
    """REC-5."""
    generator = trial.generator(f"REC-5 {_CASE}")
    native = state_dict([ordinary_states(generator, _COUNT)], _CASE.updates_done, _CASE.settings)
    entry = native["state"][0]
    # Half of them are the largest so far, where an error of `v` is hidden and that of `m` is not.
    above = torch.rand(_COUNT, generator=generator) < _HALF
    entry[LARGEST] = torch.where(above, _ABOVE * entry["exp_avg_sq"], entry["exp_avg_sq"])
    recovered = answer_of(partial(round_trip, trial, _CASE, native))
    if recovered is None:
        return  # refused in words
    where = first_difference({0: entry[LARGEST]}, {0: recovered["state"][0][LARGEST]})
    if where is not None:
        raise NonConformance("amsgrad's third moment is not recovered bit for bit", f"differs  {where}")
    require_first_updates(generator, _CASE, native, recovered)


REQUIREMENTS = (
    Requirement(
        "REC-5",
        "With amsgrad the third moment is recovered bit for bit and the first step keeps to the tolerance too, unless "
        "such a state is refused.",
        "An error of v that cancels one of m in Adam has no effect where the third moment hides it, and the guard for "
        "Adam accepts what is then too far off.",
        Level.SOUND,
        first_updates_with_amsgrad,
        needs=("compress", "recover"),
    ),
)
