"""An optimizer checkpoint, read safely and understood parameter by parameter.

Claimed: what is returned as `moments` are Adam's two moments of one parameter, of equal shape and layout, with the
number of the next update and the hyperparameters of its group; everything that cannot be covered says why.  Trusted:
`torch.load(weights_only=True)`, which executes nothing.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.errors import CheckpointError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters, next_step

StateDict = dict[str, Any]

#: Where trainers put an optimizer's state_dict inside a larger checkpoint.
_WRAPPERS = ("optimizer", "optimizer_state_dict", "optimizer_states", "optim")


@dataclass(frozen=True)
class Parameter:
    """One parameter's entry of a state_dict."""

    key: int | str  #: its key in `state`
    where: str  #: what to call it in messages: `state[3]` or `state[3] (blocks.0.weight)`
    param_group: Mapping[str, Any]
    hyperparameters: Hyperparameters
    next_step: float  #: number of the first update after recovery
    m: Tensor  #: `exp_avg`, as stored
    v: Tensor  #: `exp_avg_sq`, as stored
    kept_because: str | None  #: why it is stored exactly, or None if the guard may judge it

    @property
    def numel(self) -> int:
        """Coordinates."""
        return self.m.numel()


def load_state_dict(path: Path) -> StateDict:
    """Read an optimizer state_dict from a file written by `torch.save`, without executing anything in it.

    Raises:
        CheckpointError: the file is missing, damaged, no checkpoint, or needs classes that would have to be executed.
        UnsupportedError: the state_dict is inside a larger checkpoint.
    """
    try:
        with path.open("rb") as file:
            file.read(1)
    except IsADirectoryError:
        msg = f"{path}: is a directory; checkpoints of torch.distributed.checkpoint are not supported yet"
        raise UnsupportedError(msg) from None
    except FileNotFoundError:
        msg = f"{path}: there is no such file"
        raise CheckpointError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickles, which are read all the same
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        msg = f"{path}: {_why_not_loadable(path, error)}"
        raise CheckpointError(msg) from None
    except Exception as error:  # noqa: BLE001 - damage makes the unpickler fail in any way it likes
        msg = f"{path}: is no checkpoint of torch.save, or is damaged ({_first_line(error)})"
        raise CheckpointError(msg) from None
    return _as_state_dict(loaded, path)


def _why_not_loadable(path: Path, error: Exception) -> str:
    """Name the classes that a safe load refuses, or say that the file is no checkpoint."""
    if zipfile.is_zipfile(path):
        try:
            classes = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        except Exception:  # noqa: BLE001 - as above; then there is nothing to name
            classes = []
        if classes:
            return (
                f"holds objects that only unsafe loading could restore: {', '.join(sorted(classes))}; "
                "save optimizer.state_dict() alone with torch.save"
            )
        return f"is no checkpoint of torch.save, or is damaged ({_first_line(error)})"
    return "is no checkpoint of torch.save, or is damaged"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def _as_state_dict(loaded: object, path: Path) -> StateDict:
    if not isinstance(loaded, dict):
        msg = f"{path}: holds a {type(loaded).__name__}, expected an optimizer's state_dict"
        raise CheckpointError(msg)
    if "state" in loaded and "param_groups" in loaded:
        return loaded
    inside = [key for key in _WRAPPERS if key in loaded]
    if inside:
        msg = (
            f"{path}: the optimizer's state is inside a larger checkpoint, under {inside[0]!r}; this is not supported "
            f"yet: save that part alone, torch.save(checkpoint[{inside[0]!r}], ...)"
        )
        raise UnsupportedError(msg)
    keys = ", ".join(repr(key) for key in list(loaded)[:6])
    msg = f"{path}: has no 'state' and 'param_groups', so it is no optimizer state_dict (found {keys or 'nothing'})"
    raise CheckpointError(msg)


def parameters_of(state_dict: Mapping[str, Any]) -> list[Parameter]:
    """The parameters that have Adam moments, in the order of `state`.

    Raises:
        CheckpointError: the state is not Adam's, or inconsistent; the message names the parameter.
        UnsupportedError: an option or tensor class that this version does not handle.
    """
    if not {"state", "param_groups"} <= state_dict.keys():
        msg = "expected an optimizer's state_dict, a dictionary with 'state' and 'param_groups'"
        raise CheckpointError(msg)
    state, groups = state_dict["state"], state_dict["param_groups"]
    if not isinstance(state, dict) or not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        msg = "'state' is not a dictionary or 'param_groups' not a list of dictionaries"
        raise CheckpointError(msg)
    for key, entry in state.items():
        if not isinstance(key, (int, str)):
            msg = f"state has the key {key!r}, expected a number or a name"
            raise CheckpointError(msg)
        _require_moments(key, entry)
    placed = _groups_by_key(groups)
    hyperparameters = [Hyperparameters.from_param_group(g, f"param_groups[{i}]") for i, g in enumerate(groups)]
    parameters = []
    for key, entry in state.items():
        if key not in placed:
            msg = f"state[{key!r}] belongs to no param_group"
            raise CheckpointError(msg)
        index, name = placed[key]
        where = f"state[{key!r}]" + (f" ({name})" if name else "")
        parameters.append(_parameter(key, where, entry, groups[index], hyperparameters[index]))
    return parameters


def _require_moments(key: object, entry: object) -> None:
    if not isinstance(entry, dict):
        msg = f"state[{key!r}] is a {type(entry).__name__}, expected a dictionary"
        raise CheckpointError(msg)
    for moment in ("exp_avg", "exp_avg_sq"):
        if moment not in entry:
            found = ", ".join(repr(k) for k in entry) or "nothing"
            msg = f"parameter {key} has no {moment!r}: this is not a state of Adam or AdamW (found {found})"
            raise CheckpointError(msg)
        value = entry[moment]
        if not isinstance(value, Tensor):
            msg = f"parameter {key}: {moment} is a {type(value).__name__}, expected a tensor"
            raise CheckpointError(msg)
        if type(value) is not Tensor or value.layout is not torch.strided or value.device.type != "cpu":
            msg = f"parameter {key}: {moment} is a {type(value).__name__} ({value.layout}), which is not supported yet"
            raise UnsupportedError(msg)


def _groups_by_key(groups: list[dict[str, Any]]) -> dict[object, tuple[int, str | None]]:
    """For each parameter key: its group's index, and its name where the group has `param_names`."""
    placed: dict[object, tuple[int, str | None]] = {}
    for index, group in enumerate(groups):
        keys = group.get("params")
        if not isinstance(keys, list):
            msg = f"param_groups[{index}] has no list of 'params'"
            raise CheckpointError(msg)
        names = group.get("param_names")
        for position, key in enumerate(keys):
            if not isinstance(key, (int, str)):
                msg = f"param_groups[{index}] has the parameter {key!r}, expected a number or a name"
                raise CheckpointError(msg)
            name = names[position] if isinstance(names, list) and position < len(names) else None
            placed[key] = (index, None if name is None else str(name))
    return placed


def _parameter(
    key: int | str, where: str, entry: dict[str, Any], group: dict[str, Any], hyperparameters: Hyperparameters
) -> Parameter:
    m, v = entry["exp_avg"], entry["exp_avg_sq"]
    if m.shape != v.shape:
        msg = f"{where}: exp_avg has shape {tuple(m.shape)} but exp_avg_sq {tuple(v.shape)}"
        raise CheckpointError(msg)
    if "step" not in entry:
        msg = f"{where} has no 'step': the bias corrections of the next update are unknown"
        raise CheckpointError(msg)
    return Parameter(
        key=key,
        where=where,
        param_group=group,
        hyperparameters=hyperparameters,
        next_step=next_step(entry["step"], where),
        m=m,
        v=v,
        kept_because=_why_kept(m, v, hyperparameters),
    )


def _why_kept(m: Tensor, v: Tensor, hyperparameters: Hyperparameters) -> str | None:
    for moment in (m, v):
        if moment.dtype is not torch.float32:
            return f"{str(moment.dtype).removeprefix('torch.')} moments"
    if hyperparameters.amsgrad:
        return "amsgrad"
    if m.numel() == 0:
        return "no coordinates"
    if m.stride() != v.stride() or not is_dense(m.shape, m.stride()):
        return "memory layout"
    if hyperparameters.fused and not m.is_contiguous():
        return "not contiguous with fused=True"
    return None


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
