"""The same moments as if at another step, or of a run with other hyperparameters: for sweeps, not for use."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from guarded_moments.reference.checkpoint.layouts import at, places_of, replaced, with_own_states

#: Where bias correction is gone.
LATE = 100_000


def altered(checkpoint: Mapping[str, Any], *, updates: int | None = None, **options: object) -> Any:  # noqa: ANN401 - a checkpoint
    """A checkpoint with the moments of another.

    Args:
        checkpoint: a state of Adam or AdamW, or one with such states in it.
        updates: how many were made, in place of the checkpoint's own.
        options: of every param_group, in place of its own.
    """
    changed = with_own_states(checkpoint)
    for place in places_of(changed):
        state_dict = at(changed, place)
        if updates is not None:
            for entry in state_dict["state"].values():
                if "step" in entry:
                    entry["step"] = torch.tensor(float(updates))
        groups = [{**copy.copy(group), **options} for group in state_dict["param_groups"]]
        changed = replaced(changed, (*place, "param_groups"), groups)
    return changed
