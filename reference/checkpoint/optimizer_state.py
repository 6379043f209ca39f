"""The optimizers' states of a checkpoint, understood parameter by parameter.

Claimed: what is returned as `m` and `v` are Adam's two moments of one parameter, of equal shape and layout, with the
number of the next update and the hyperparameters of its group; everything that cannot be covered says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.foreign import owner_of_group, owner_of_state, what_tensor
from guarded_moments.reference.checkpoint.layouts import Place, at, in_words, places_of
from guarded_moments.reference.checkpoint.storages import ADVICE, storage_in
from guarded_moments.reference.errors import CheckpointError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters, next_step

StateDict = dict[str, Any]

#: The key of a state_dict that holds the bytes of a `.gmc` file instead of a state.
COMPRESSED = "guarded_moments"

#: The two moments by the names that torch gives them.
MOMENTS = ("exp_avg", "exp_avg_sq")
#: amsgrad's largest second moment so far, which is kept exactly.
LARGEST = "max_exp_avg_sq"


@dataclass(frozen=True)
class Parameter:
    """One parameter's entry of an optimizer's state_dict."""

    place: Place  #: of the optimizer's state_dict in the checkpoint
    key: int | str  #: its key in `state`
    where: str  #: what to call it in messages: `state[3]`, `optimizer.state[3] (blocks.0.weight)`
    param_group: Mapping[str, Any]
    hyperparameters: Hyperparameters
    next_step: float  #: number of the first update after recovery
    m: Tensor  #: `exp_avg`, as stored
    v: Tensor  #: `exp_avg_sq`, as stored
    kept_because: str | None  #: why it is stored exactly, or None if the guard may judge it
    v_max: Tensor | None = None  #: `max_exp_avg_sq`, as stored, with amsgrad

    @property
    def numel(self) -> int:
        """Coordinates."""
        return self.m.numel()


@dataclass(frozen=True)
class ForeignState:
    """A parameter's entry in the state of an optimizer that is not Adam, which lies beside one that is."""

    key: int | str
    where: str
    numel: int  #: elements of its largest tensor
    owner: str  #: whose state it is


def parameters_of(checkpoint: Mapping[str, Any]) -> list[Parameter]:
    """The parameters that have Adam moments, in the order of the optimizers and of their `state`.

    Args:
        checkpoint: `optimizer.state_dict()` of `torch.optim.Adam` or `AdamW`, or a dictionary that holds one or more.

    Raises:
        CheckpointError: no optimizer's state is Adam's, or one is inconsistent; the message names the parameter.
        UnsupportedError: an option or tensor class that this version does not handle.
    """
    return contents_of(checkpoint)[0]


def contents_of(checkpoint: Mapping[str, Any]) -> tuple[list[Parameter], list[ForeignState]]:
    """The parameters that have Adam moments, and the states of other optimizers that lie beside them.

    Raises:
        CheckpointError, UnsupportedError: as `parameters_of`.
    """
    if (storage := storage_in(checkpoint)) is not None:
        msg = f"holds a storage at {storage}, {ADVICE}"
        raise CheckpointError(msg)
    places = places_of(checkpoint)
    if not places:
        msg = "expected an optimizer's state_dict, a dictionary with 'state' and 'param_groups', or one that holds some"
        raise CheckpointError(msg)
    parameters: list[Parameter] = []
    foreign: list[ForeignState] = []
    refusals: list[_NotAdamError] = []
    for place in places:
        try:
            parameters += _parameters_at(checkpoint, place)
        except _NotAdamError as refusal:
            refusals.append(refusal)
            foreign += _foreign_at(checkpoint, place, refusal.owner)
    if len(refusals) == len(places):
        raise CheckpointError(str(refusals[0])) from None
    return parameters, foreign


class _NotAdamError(CheckpointError):
    """No entry of this optimizer's state has both moments: it is another optimizer's."""

    def __init__(self, text: str, owner: str) -> None:
        super().__init__(text)
        self.owner = owner


def _parameters_at(checkpoint: Mapping[str, Any], place: Place) -> Iterator[Parameter]:
    state_dict, prefix = at(checkpoint, place), in_words(place)
    state, groups = state_dict["state"], state_dict["param_groups"]
    of = f"{prefix}: " if prefix else ""
    if COMPRESSED in state_dict:
        msg = f"{of}is compressed already: it holds a .gmc file under {COMPRESSED!r}, for `training.guard_checkpoints`"
        raise CheckpointError(msg)
    if not isinstance(state, dict) or not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        msg = f"{of}'state' is not a dictionary or 'param_groups' not a list of dictionaries"
        raise CheckpointError(msg)
    some_moments = any(isinstance(entry, dict) and entry.keys() >= set(MOMENTS) for entry in state.values())
    for key, entry in state.items():
        if not isinstance(key, (int, str)):
            msg = f"{of}state has the key {key!r}, expected a number or a name"
            raise CheckpointError(msg)
        _require_moments(of, key, entry, some_moments=some_moments)
    placed = _groups_by_key(groups, of)
    hyperparameters = [_hyperparameters(group, f"{of}param_groups[{i}]", state) for i, group in enumerate(groups)]
    prefix = f"{prefix}." if prefix else ""
    for key, entry in state.items():
        if key not in placed:
            msg = f"{prefix}state[{key!r}] belongs to no param_group"
            raise CheckpointError(msg)
        index, name = placed[key]
        where = f"{prefix}state[{key!r}]" + (f" ({name})" if name else "")
        yield _parameter(place, key, where, entry, groups[index], hyperparameters[index])


def _hyperparameters(group: dict[str, Any], where: str, state: Mapping[object, object]) -> Hyperparameters:
    """The group's hyperparameters, or a refusal that names the optimizer where its keys tell."""
    try:
        return Hyperparameters.from_param_group(group, where)
    except CheckpointError as error:
        owner = owner_of_group(group)
        if owner is None:
            raise
        text = f"{error}; it looks like a group of {owner}"
        raise (CheckpointError(text) if state else _NotAdamError(text, owner)) from None


def _foreign_at(checkpoint: Mapping[str, Any], place: Place, owner: str) -> Iterator[ForeignState]:
    for key, entry in at(checkpoint, place)["state"].items():
        tensors = [value for value in entry.values() if isinstance(value, Tensor)] if isinstance(entry, dict) else []
        numel = max((tensor.numel() for tensor in tensors), default=0)
        yield ForeignState(key, f"{in_words(place)}.state[{key!r}]", numel, owner)


def _require_moments(of: str, key: object, entry: object, *, some_moments: bool) -> None:
    if not isinstance(entry, dict):
        msg = f"{of}state[{key!r}] is a {type(entry).__name__}, expected a dictionary"
        raise CheckpointError(msg)
    for moment in MOMENTS:
        if moment not in entry:
            found = ", ".join(repr(k) for k in entry) or "nothing"
            msg = f"{of}parameter {key} has no {moment!r}: this is not a state of Adam or AdamW (found {found})"
            owner = owner_of_state(entry)
            if owner is None or some_moments:
                raise CheckpointError(msg)
            raise _NotAdamError(f"{msg}; it looks like a state of {owner}", owner)
        value = entry[moment]
        if not isinstance(value, Tensor):
            msg = f"{of}parameter {key}: {moment} is a {type(value).__name__}, expected a tensor"
            raise CheckpointError(msg)
        if type(value) is not Tensor or value.layout is not torch.strided or value.device.type != "cpu":
            msg = f"{of}parameter {key}: {moment} is {what_tensor(value)}, which is not supported"
            raise UnsupportedError(msg)


def _groups_by_key(groups: list[dict[str, Any]], of: str) -> dict[object, tuple[int, str | None]]:
    """For each parameter key: its group's index, and its name where the group has `param_names`."""
    placed: dict[object, tuple[int, str | None]] = {}
    for index, group in enumerate(groups):
        keys = group.get("params")
        if not isinstance(keys, list):
            msg = f"{of}param_groups[{index}] has no list of 'params'"
            raise CheckpointError(msg)
        names = group.get("param_names")
        for position, key in enumerate(keys):
            if not isinstance(key, (int, str)):
                msg = f"{of}param_groups[{index}] has the parameter {key!r}, expected a number or a name"
                raise CheckpointError(msg)
            name = names[position] if isinstance(names, list) and position < len(names) else None
            placed[key] = (index, None if name is None else str(name))
    return placed


def _parameter(
    place: Place,
    key: int | str,
    where: str,
    entry: dict[str, Any],
    group: dict[str, Any],
    hyperparameters: Hyperparameters,
) -> Parameter:
    m, v = (entry[moment] for moment in MOMENTS)
    if m.shape != v.shape:
        msg = f"{where}: exp_avg has shape {tuple(m.shape)} but exp_avg_sq {tuple(v.shape)}"
        raise CheckpointError(msg)
    if "step" not in entry:
        msg = f"{where} has no 'step': the bias corrections of the next update are unknown"
        raise CheckpointError(msg)
    return Parameter(
        place=place,
        key=key,
        where=where,
        param_group=group,
        hyperparameters=hyperparameters,
        next_step=next_step(entry["step"], where, fused=hyperparameters.fused or hyperparameters.capturable),
        m=m,
        v=v,
        kept_because=_why_kept(entry, hyperparameters),
        v_max=entry.get(LARGEST) if hyperparameters.amsgrad else None,
    )


def _why_kept(entry: Mapping[str, Any], hyperparameters: Hyperparameters) -> str | None:
    m, v = (entry[moment] for moment in MOMENTS)
    for moment in (m, v):
        if moment.dtype is not torch.float32:
            return f"{str(moment.dtype).removeprefix('torch.')} moments"
    if hyperparameters.amsgrad and not _is_like(entry.get(LARGEST), v):
        return "amsgrad without its third moment"
    if m.numel() == 0:
        return "no coordinates"
    if m.stride() != v.stride() or not is_dense(m.shape, m.stride()):
        return "memory layout"
    if hyperparameters.fused and not m.is_contiguous():
        return "not contiguous with fused=True"
    return None


def _is_like(value: object, moment: Tensor) -> bool:
    """Whether a value is a tensor that lies in memory as a moment does."""
    return (
        type(value) is Tensor
        and value.device == moment.device
        and (value.dtype, value.layout, value.shape) == (moment.dtype, moment.layout, moment.shape)
        and value.stride() == moment.stride()
    )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements of that layout fill one block of memory, each once, in some order of the dimensions."""
    if len(shape) != len(strides):
        return False
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def in_memory_order(tensor: Tensor) -> Tensor:
    """A dense tensor's elements as they lie in memory: shape (numel,), a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
