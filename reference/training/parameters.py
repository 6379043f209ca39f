"""A live optimizer's parameters in the order in which torch numbers them, and whether a state is theirs.

`Optimizer.load_state_dict` matches by position alone: it takes a moment of another shape, and the moments of two
parameters that were exchanged.  A saved state therefore says what its parameters were.

Claimed: a state whose moments have other shapes, whose named parameters are in another order, or whose parameters are a
permutation of the optimizer's by value, is refused.  Parameters of equal shapes without names, whose values were not
loaded when the optimizer was, cannot be told apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS
from guarded_moments.reference.errors import CheckpointError

#: What a saved state_dict says of its parameters: one list [shape, digest] for each, in torch's order.
KEY = "guarded_parameters"


class Placed(NamedTuple):
    """One parameter of an optimizer."""

    parameter: Tensor
    group: Mapping[str, Any]
    where: str  #: its name where the optimizer knows one, else its place


def placed(optimizer: torch.optim.Optimizer) -> list[Placed]:
    """The parameters in torch's order: group after group."""
    found: list[Placed] = []
    for index, group in enumerate(optimizer.param_groups):
        names = group.get("param_names")
        for position, parameter in enumerate(group["params"]):
            name = str(names[position]) if names else f"param_groups[{index}]['params'][{position}]"
            found.append(Placed(parameter, group, name))
    return found


def identities(optimizer: torch.optim.Optimizer) -> list[list[Any]]:
    """What `KEY` holds: the parameters' shapes and digests of their values."""
    return [[list(p.parameter.shape), _digest(p.parameter)] for p in placed(optimizer)]


def _digest(parameter: Tensor) -> str:
    values = local(parameter).detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.blake2b(values.numpy().data, digest_size=8).hexdigest()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, or the tensor."""
    part = getattr(tensor, "to_local", None)
    return part() if part is not None else tensor


def require_own(optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Refuse a state that is not this optimizer's.

    Raises:
        CheckpointError: another number of groups or parameters, another order of names or values, another shape.
    """
    groups, ours = state_dict["param_groups"], placed(optimizer)
    sizes = [len(group["params"]) for group in groups], [len(group["params"]) for group in optimizer.param_groups]
    if sizes[0] != sizes[1]:
        msg = f"the state has groups of {sizes[0]} parameters, the optimizer of {sizes[1]}: it is another model's"
        raise CheckpointError(msg)
    for index, (group, own) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        names, own_names = group.get("param_names"), own.get("param_names")
        if names and own_names and list(names) != list(own_names):
            one, other = next((a, b) for a, b in zip(names, own_names, strict=True) if a != b)
            msg = f"param_groups[{index}]: the state has {one!r} where the optimizer has {other!r}"
            raise CheckpointError(msg)
    _require_values(ours, state_dict.get(KEY))
    keys = [key for group in groups for key in group["params"]]
    for key, (parameter, _, where) in zip(keys, ours, strict=True):
        for moment in MOMENTS:
            value = state_dict["state"].get(key, {}).get(moment)
            if isinstance(value, Tensor) and value.shape != parameter.shape:
                msg = f"{where}: {moment} has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}"
                raise CheckpointError(msg)


def _require_values(ours: Sequence[Placed], saved: Any) -> None:  # noqa: ANN401 - whatever a file holds
    """Refuse parameters that are there by value, but in another place."""
    if not isinstance(saved, list) or len(saved) != len(ours):
        return
    digests = [digest for _, digest in saved]
    for index, parameter in enumerate(ours):
        own = _digest(parameter.parameter)
        if own != digests[index] and digests.count(own) == 1:
            msg = (
                f"{parameter.where}: its values are those of parameter {digests.index(own)} of the state, not of "
                f"{index}: the parameters are in another order"
            )
            raise CheckpointError(msg)
