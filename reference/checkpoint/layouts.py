"""Where optimizers' states lie in a checkpoint: alone, or inside what a trainer saved beside them.

A *checkpoint* is what `torch.load` gives: dictionaries and lists of tensors and plain values.  A *place* is the path of
keys from it to an optimizer's state_dict, a dictionary with `state` and `param_groups`; `()` is a bare one.  Every
layout is found by that shape and not by its name, so that `checkpoint["optimizer"]`, Lightning's `optimizer_states[0]`
and the two optimizers of a GAN need no list of frameworks.

Claimed: every optimizer state_dict that dictionaries and lists lead to has its place in the result, in the order of the
checkpoint; `replaced` changes nothing but what lies at the place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from guarded_moments.reference.errors import CheckpointError

#: The path of keys and indices from a checkpoint to something in it.
Place = tuple[str | int, ...]

#: What makes a dictionary an optimizer's state_dict.
KEYS = frozenset({"state", "param_groups"})
#: Levels that are searched: Trainers nest two deep; what is deeper is an object's own business.
_DEPTH = 6


def is_state_dict(value: object) -> bool:
    """Whether it has the two keys of an optimizer's state_dict; what is under them may still be anything."""
    return isinstance(value, dict) and value.keys() >= KEYS


def places_of(checkpoint: object) -> list[Place]:
    """The places of all optimizer state_dicts in a checkpoint."""
    return list(_places(checkpoint, (), _DEPTH))


def _places(value: object, place: Place, depth: int) -> Iterator[Place]:
    if is_state_dict(value):
        yield place
    elif depth and isinstance(value, (dict, list, tuple)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, (str, int)):
                yield from _places(part, (*place, key), depth - 1)


def at(checkpoint: Any, place: Place) -> Any:  # noqa: ANN401 - a checkpoint holds anything
    """What lies at a place.

    Raises:
        LookupError, TypeError: nothing does.
    """
    for key in place:
        checkpoint = checkpoint[key]
    return checkpoint


def replaced(checkpoint: Any, place: Place, value: object) -> Any:  # noqa: ANN401 - as above
    """The checkpoint with something else at a place; what lies beside the way there is shared, not copied."""
    if not place:
        return value
    key, *rest = place
    inner = replaced(checkpoint[key], tuple(rest), value)
    if isinstance(checkpoint, tuple):
        parts = [inner if index == key else part for index, part in enumerate(checkpoint)]
        return type(checkpoint)(*parts) if hasattr(checkpoint, "_fields") else type(checkpoint)(parts)
    changed = copy.copy(checkpoint)  # keeps the class and, of an ordered dictionary, its attributes
    changed[key] = inner
    return changed


def with_own_states(checkpoint: Any) -> Any:  # noqa: ANN401 - as above
    """The checkpoint with the entries of every `state` copied one level deep, so that their keys can be set apart."""
    for place in places_of(checkpoint):
        state_dict = at(checkpoint, place)
        state = {key: copy.copy(entry) for key, entry in state_dict["state"].items()}
        checkpoint = replaced(checkpoint, (*place, "state"), state)
    return checkpoint


def apart(checkpoint: Any) -> tuple[Any, list[tuple[Place, dict[str, Any]]]]:  # noqa: ANN401 - as above
    """What lies beside the optimizers' states (None in their places), and those states with their places."""
    states = [(place, at(checkpoint, place)) for place in places_of(checkpoint)]
    for place, _ in states:
        checkpoint = replaced(checkpoint, place, None)
    return checkpoint, states


def together(beside: Any, states: list[tuple[Place, dict[str, Any]]]) -> Any:  # noqa: ANN401 - as above
    """The inverse of `apart`."""
    for place, state_dict in states:
        beside = replaced(beside, place, state_dict)
    return beside


def in_words(place: Place) -> str:
    """A place as Python would write it after the checkpoint's name: `optimizer_states[0]`, empty for a bare state."""
    first, *rest = place or ("",)
    return (first if isinstance(first, str) else f"[{first}]") + "".join(f"[{key!r}]" for key in rest)


def entry_at(checkpoint: Any, place: Place, key: int | str) -> dict[str, Any]:  # noqa: ANN401 - as above
    """The entry of one parameter in the `state` of the optimizer at a place."""
    entry: dict[str, Any] = at(checkpoint, place)["state"][key]
    return entry


def group_of(checkpoint: Any, place: Place, key: int | str) -> Mapping[str, Any]:  # noqa: ANN401 - as above
    """The param_group that governs one parameter of the optimizer at a place.

    Raises:
        CheckpointError: none does.
    """
    groups: list[dict[str, Any]] = at(checkpoint, place)["param_groups"]
    for group in groups:
        if key in group["params"]:
            return group
    raise CheckpointError(f"{in_words((*place, 'state', key))} belongs to no param_group")
