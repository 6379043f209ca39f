"""REC, continued: what surrounds the moments in a state comes back as it was."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import ordinary_states
from guarded_moments.oracle.conformance.optimizer_states import Pair, adamw, state_dict
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.optimizer_state import StateDict

_SHAPES = ((), (1,), (0,), (5, 7), (3, 0, 2), (2, 3, 4, 5))
_MOMENTS = ("exp_avg", "exp_avg_sq")


def everything_else_is_untouched(trial: Trial) -> None:
    """REC-2."""
    generator = trial.generator("REC-2")
    for words, state in (
        ("parameters of every shape and layout", _state(generator)),
        ("an optimizer that never stepped", adamw([torch.Size([3])], {"lr": 1e-3}).state_dict()),
        ("one step without a gradient", state_dict([(torch.zeros(4), torch.zeros(4))], 1, {"lr": 1e-3})),
    ):
        native = copy.deepcopy(state)
        content = trial.backend.compress(state, tolerance=0.01, gradient_bound=1.0)
        recovered = trial.backend.recover(content)
        moments = frozenset(("state", key, name) for key in native["state"] for name in _MOMENTS)
        where = first_difference(native, recovered, moments)
        if where is not None:
            raise NonConformance(f"what is no moment was not recovered as it was: {where}", f"state  {words}")
        for key, entry in native["state"].items():
            for name in _MOMENTS:
                _require_same_form(f"state[{key}][{name!r}]", entry[name], recovered["state"][key].get(name))


def _state(generator: torch.Generator) -> StateDict:
    """Two groups with keys of their own, steps of every kind, and moments in several layouts."""
    moments: list[Pair] = []
    for shape in _SHAPES:
        m, v = ordinary_states(generator, torch.Size(shape).numel())
        moments.append((m.reshape(shape), v.reshape(shape)))
    m, v = (moment.reshape(6, 4) for moment in ordinary_states(generator, 24))
    moments.append((m.t(), v.t()))
    m, v = (moment.reshape(2, 3, 4, 5) for moment in ordinary_states(generator, 120))
    moments.append((m.to(memory_format=torch.channels_last), v.to(memory_format=torch.channels_last)))
    state: Any = state_dict(moments, 7, {"lr": 1e-3})
    last = len(moments) - 1
    state["state"][last]["step"] = 7
    first = state["param_groups"][0]
    first["params"] = list(range(last))
    state["param_groups"].append({**first, "params": [last], "lr": 3e-4, "initial_lr": 1e-2, "name": "last"})
    return dict(state)


def _require_same_form(where: str, before: Tensor, after: object) -> None:
    if not isinstance(after, Tensor):
        raise NonConformance(f"{where} was recovered as a {type(after).__name__}")
    for form in ("dtype", "shape", "layout", "device"):
        if getattr(before, form) != getattr(after, form):
            raise NonConformance(
                f"{where} was recovered with another {form}",
                f"native     {getattr(before, form)}",
                f"recovered  {getattr(after, form)}",
            )


REQUIREMENTS = (
    Requirement(
        "REC-2",
        "All that is no moment (step counts, groups, their options and unknown keys) is recovered bit for bit, and the "
        "moments in their shapes.",
        "Half of the reported failures to resume are a lost step count, group or learning rate.",
        Level.SOUND,
        everything_else_is_untouched,
        needs=("compress", "recover"),
    ),
)
