"""Optimizer states as torch makes them, for the requirements that go through bytes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.optimizer_state import StateDict

#: The moments of one parameter, float32 of any shape.
Pair = tuple[Tensor, Tensor]


def adamw(shapes: Sequence[torch.Size], settings: Mapping[str, Any]) -> torch.optim.AdamW:
    """AdamW on parameters that are zero, so that a step leaves the bare update in them."""
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes], **settings)


def state_dict(moments: Sequence[Pair], updates_done: int, settings: Mapping[str, Any]) -> StateDict:
    """The state_dict of AdamW with these moments, which it shares."""
    state = adamw([m.shape for m, _ in moments], settings).state_dict()
    state["state"] = {
        index: {"step": torch.tensor(float(updates_done)), "exp_avg": m, "exp_avg_sq": v}
        for index, (m, v) in enumerate(moments)
    }
    return state


def moments_of(state: StateDict) -> list[Pair]:
    """The moments of all parameters."""
    return [(entry["exp_avg"], entry["exp_avg_sq"]) for entry in state["state"].values()]


def first_updates(state: StateDict, gradients: Sequence[Tensor], settings: Mapping[str, Any]) -> list[Tensor]:
    """What torch's next step adds to each parameter; the state is left as it was."""
    optimizer = adamw([g.shape for g in gradients], settings)
    optimizer.load_state_dict(copy.deepcopy(state))
    parameters: list[Tensor] = optimizer.param_groups[0]["params"]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    return [parameter.detach() for parameter in parameters]
