"""One line for any trainer: from then on, what `optimizer.state_dict()` gives is compressed, and loads again.

    guard_checkpoints(optimizer, tolerance=0.01, grad_bound=float("inf"))

torch calls the hooks wherever a state_dict is made or taken, also inside trainers.  The state_dict then holds the bytes
of a `.gmc` file under `COMPRESSED` and no `param_groups`, so that a run without the hooks refuses it loudly instead of
starting from nothing.

Claimed: loading takes compressed and plain state_dicts alike; a never-stepped optimizer's is left as it is, since
trainers save and load one before training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.guarded import compress, recover
from guarded_moments.reference.checkpoint.optimizer_state import COMPRESSED, StateDict
from guarded_moments.reference.checkpoint.packing import as_bytes
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.training.first_update import FirstUpdate, watch_first_update
from guarded_moments.reference.training.loading import restore_moments
from guarded_moments.reference.training.parameters import KEY, identities, require_own


class Guarded:
    """An optimizer whose state_dicts are compressed; what `guard_checkpoints` gives."""

    def __init__(self) -> None:
        self.first_update: FirstUpdate | None = None  #: of the last compressed state that was loaded
        self.handles: list[Any] = []
        self.loading: tuple[StateDict, GuardedState | None] | None = None  #: between the hooks

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()


def guard_checkpoints(
    optimizer: torch.optim.Optimizer,
    *,
    tolerance: float,
    grad_bound: float | Sequence[float],
    **choices: Any,  # noqa: ANN401 - of `compress`
) -> Guarded:
    """Make every state_dict of an optimizer a compressed one, and let it load compressed and plain ones.

    Args:
        optimizer: `torch.optim.Adam` or `AdamW`.
        tolerance: `tau`, in learning rates.
        grad_bound: `G`, as `compress` takes it.
        choices: more choices of `compress`.
    """
    guarded = Guarded()
    own: Callable[..., Any] = optimizer.register_state_dict_post_hook

    def compressed(_: torch.optim.Optimizer, state_dict: StateDict) -> StateDict:
        if COMPRESSED in state_dict or not state_dict["state"]:
            return state_dict
        named = {**state_dict, KEY: identities(optimizer)}
        content = to_bytes(compress(named, tolerance=tolerance, grad_bound=grad_bound, **choices))
        return {"state": {}, "param_groups": [], COMPRESSED: as_bytes(content)}

    def decoded(_: torch.optim.Optimizer, state_dict: StateDict) -> StateDict:
        state = None
        if COMPRESSED in state_dict:
            state = from_bytes(bytes(state_dict[COMPRESSED].cpu().numpy().data))
            state_dict = recover(state)
        require_own(optimizer, state_dict)
        guarded.loading = state_dict, state
        return {key: value for key, value in state_dict.items() if key != KEY}

    def loaded(_: torch.optim.Optimizer) -> None:
        if guarded.loading is None:
            return
        state_dict, state = guarded.loading
        guarded.loading = None
        restore_moments(optimizer, state_dict)
        guarded.first_update = None if state is None else watch_first_update(optimizer, state)

    guarded.handles = [
        own(compressed),
        optimizer.register_load_state_dict_pre_hook(decoded),
        optimizer.register_load_state_dict_post_hook(loaded),
    ]
    return guarded
