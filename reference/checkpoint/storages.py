"""Storages: what a tensor lies in, and what no checkpoint needs by itself.

A safe load restores one where a pickle names it; a damaged or crafted pickle can also name it where a dictionary or a
list should be.  A storage has a length and elements like a list, warns when it is used as one, and equals itself alone,
so that what is recovered could not be compared.  It is therefore refused when it comes in, wherever it lies.

Claimed: `None` means that none lies in the dictionaries, lists, tuples and sets of a checkpoint, at any depth.
"""

from __future__ import annotations

from typing import Any

from torch import TypedStorage, UntypedStorage

from guarded_moments.reference.checkpoint.layouts import in_words

#: What to do about one that was found, to follow "holds a storage".
ADVICE = "which is no part of a checkpoint by itself: save the tensor that lies in it"


def storage_in(checkpoint: object) -> str | None:
    """Where the first storage lies, such as `model['weight']` (empty: it is itself one), or None."""
    pending: list[tuple[tuple[str | int, ...], object]] = [((), checkpoint)]
    seen = set()  # a pickle can describe a list that holds itself
    while pending:
        place, part = pending.pop()
        if isinstance(part, (TypedStorage, UntypedStorage)):
            return in_words(place)
        if isinstance(part, (dict, list, tuple, set, frozenset)) and id(part) not in seen:
            seen.add(id(part))
            pending += [((*place, key), inner) for key, inner in _inside(part)]
    return None


def _inside(container: Any) -> list[tuple[str | int, object]]:  # noqa: ANN401 - of the kinds above
    """What is directly in a container, each with a key that says where; keys of a dictionary are in it too."""
    if isinstance(container, dict):
        named = {key: key if isinstance(key, (str, int)) else repr(type(key)) for key in container}
        return [(named[key], inner) for key, value in container.items() for inner in (key, value)]
    return list(enumerate(container))
