"""`save_guarded` and `load_guarded`: an optimizer's state to a `.gmc` file and back, in the training loop.

Claimed: what is loaded into the optimizer is what the file holds, in the dtype that it was saved in, for the parameters
that it was saved of; otherwise an error, and the optimizer is as it was.  Trusted: `Optimizer.load_state_dict`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from guarded_moments.reference.checkpoint.file_format import read, write
from guarded_moments.reference.checkpoint.guarded import compress, recover
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, StateDict
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError
from guarded_moments.reference.training.first_update import FirstUpdate, watch_first_update
from guarded_moments.reference.training.parameters import KEY, identities, placed, require_own


def save_guarded(
    optimizer: torch.optim.Optimizer,
    path: Path | str,
    *,
    tolerance: float,
    grad_bound: float | Sequence[float],
    overwrite: bool = True,
    **choices: Any,  # noqa: ANN401 - of `compress`
) -> GuardedState:
    """Compress an optimizer's state into a `.gmc` file, whole or not at all.

    Args:
        optimizer: `torch.optim.Adam` or `AdamW`; it is not changed.
        path: the file; an older one is replaced, once the newer is there whole.
        tolerance: `tau`, in learning rates.
        grad_bound: `G`, the largest magnitude of a gradient as it enters the moments; may be infinite.  Or one for each
            of the optimizer's param_groups.  `clipping` has those of torch's clipping.
        overwrite: whether an older file may be replaced.
        choices: more choices of `compress`, such as `codec` or `implementation`.

    Raises:
        GuardedMomentsError: as `compress` and `write`.
    """
    state = compress(plain_state(optimizer), tolerance=tolerance, grad_bound=grad_bound, **choices)
    write(state, Path(path), overwrite=overwrite)
    return state


def load_guarded(optimizer: torch.optim.Optimizer, path: Path | str) -> FirstUpdate:
    """Load a `.gmc` file into an optimizer, and watch whether its next update is covered by the guarantee.

    Load the model's weights first: parameters in another order are then found out by their values.

    Args:
        optimizer: of the kind that was saved, over the same parameters in the same order.
        path: the file.

    Returns:
        What will be known of the guarantee after the next `optimizer.step()`.

    Raises:
        CheckpointError, FormatError: the file is damaged, or of other parameters; the optimizer is then as it was.
    """
    state = read(Path(path))
    try:
        load_state(optimizer, recover(state))
    except GuardedMomentsError as error:
        raise type(error)(f"{path}: {error}") from None
    return watch_first_update(optimizer, state)


def plain_state(optimizer: torch.optim.Optimizer) -> StateDict:
    """The state_dict without what hooks make of it, and with what tells its parameters apart."""
    hooks = optimizer._optimizer_state_dict_post_hooks  # noqa: SLF001 - torch offers no other way around its hooks
    aside = hooks.copy()
    hooks.clear()
    try:
        state_dict: StateDict = optimizer.state_dict()
    finally:
        hooks.update(aside)
    return {**state_dict, KEY: identities(optimizer)}


def load_state(optimizer: torch.optim.Optimizer, state_dict: StateDict) -> None:
    """`optimizer.load_state_dict`, with what it does not check, and without what it rounds.

    Raises:
        CheckpointError: the state is not of these parameters; nothing was loaded.
    """
    require_own(optimizer, state_dict)
    before = copy.copy(optimizer.__dict__)
    try:
        optimizer.load_state_dict({key: value for key, value in state_dict.items() if key != KEY})
    except (ValueError, KeyError, RuntimeError) as error:
        optimizer.__dict__.update(before)
        msg = f"the optimizer does not take the state: {error}"
        raise CheckpointError(msg) from None
    restore_moments(optimizer, state_dict)


def restore_moments(optimizer: torch.optim.Optimizer, state_dict: StateDict) -> None:
    """Put back moments that `load_state_dict` has cast to the parameter's dtype: float32 stays float32."""
    keys = [key for group in state_dict["param_groups"] for key in group["params"]]
    for key, (parameter, *_) in zip(keys, placed(optimizer), strict=True):
        for moment in MOMENTS:
            saved = state_dict["state"].get(key, {}).get(moment)
            loaded = optimizer.state.get(parameter, {}).get(moment)
            if loaded is not None and saved is not None and loaded.dtype is not saved.dtype:
                optimizer.state[parameter][moment] = saved.to(loaded.device, copy=True)
