"""The optimizers in a folder of torch.distributed.checkpoint, in the three layouts that PyTorch has for them.

    tree        `optim.state.<name>.exp_avg`, `optim.param_groups.<i>.lr`       get_state_dict
    flattened   `optim.state.<name>.exp_avg`, `optim.param_groups.<name>.lr`    flatten_optimizer_state_dict=True
    raw         `optim.state.<number>.exp_avg`, `optim.param_groups.<i>.lr`     optimizer.state_dict() itself

Names of parameters contain dots, and `optim` may be anything or missing; so nothing is split at a dot that has not been
confirmed by an entry of param_groups on the other side.

Claimed: a pair of moments is found wherever `exp_avg` and `exp_avg_sq` of one parameter are stored, and its group is
the one that was saved for it; what has no group is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guarded_moments.reference.checkpoint.distributed.items import read_item, value_of
from guarded_moments.reference.checkpoint.distributed.metadata import Item, Metadata
from guarded_moments.reference.checkpoint.foreign import owner_of_state
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS
from guarded_moments.reference.errors import CheckpointError

_STATE, _GROUPS = "state.", "param_groups."


@dataclass(frozen=True)
class Pair:
    """The two moments of one chunk of one parameter."""

    optimizer: str  #: what its names begin with: `optim`, empty where nothing does
    parameter: str  #: the parameter's name or number
    m: Item
    v: Item

    @property
    def key(self) -> str:
        """What to call it: the parameter, and which part of it."""
        return f"{self.parameter}{self.m.where}"


class Optimizers:
    """The optimizers of one folder; hyperparameters and steps are read when they are asked for, and once."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self._folder, self._metadata = folder, metadata
        self._values: dict[str, object] = {}
        self._of_tree = self._tree_groups()

    def pairs(self) -> list[Pair]:
        """All pairs of moments.

        Raises:
            CheckpointError: no parameter has moments, one has only one of them, or their chunks differ.
        """
        found = list(self._pairs())
        if not found:
            last = {name.rpartition(".")[2] for name in self._metadata.items if _STATE in name}
            owner = owner_of_state(dict.fromkeys(last)) if last else None
            guess = f"; it looks like a state of {owner}" if owner else ""
            found_keys = ", ".join(sorted(last)) or "no state"
            msg = f"{self._folder}: holds no state of Adam or AdamW (found {found_keys}){guess}"
            raise CheckpointError(msg)
        return found

    def _pairs(self) -> Iterator[Pair]:
        first, second = (f".{moment}" for moment in MOMENTS)
        for name, chunks in self._metadata.items.items():
            if name.endswith(second) and name.removesuffix(second) + first not in self._metadata.items:
                msg = f"{self._folder}: {name} has no 'exp_avg' beside it: this is not a state of Adam or AdamW"
                raise CheckpointError(msg)
            if not name.endswith(first):
                continue
            base = name.removesuffix(first)
            partners = self._metadata.items.get(base + second)
            if partners is None or [_extent(c) for c in chunks] != [_extent(c) for c in partners]:
                msg = f"{self._folder}: {name} has no 'exp_avg_sq' in the same chunks beside it"
                raise CheckpointError(msg)
            optimizer, parameter = self._split(base)
            for m, v in zip(chunks, partners, strict=True):
                yield Pair(optimizer, parameter, m, v)

    def entry(self, pair: Pair) -> dict[str, Any]:
        """What a parameter's state holds beside the moments, in the order of torch: `step`."""
        name = f"{_joined(pair.optimizer, _STATE)}{pair.parameter}.step"
        return {"step": self._value(name)} if name in self._metadata.items else {}

    def groups(self, pairs: list[Pair]) -> list[dict[str, Any]]:
        """The param_groups of some pairs of one optimizer, with the pairs' keys as their `params`.

        Raises:
            CheckpointError: a value is damaged.
        """
        by_names: dict[tuple[str, ...], dict[str, Any]] = {}
        for pair in pairs:
            names = self._group_names(pair)
            if tuple(names.values()) not in by_names:
                values = {key: self._value(name) for key, name in names.items() if key != "params"}
                by_names[tuple(names.values())] = {**values, "params": []}
            by_names[tuple(names.values())]["params"].append(pair.key)
        return list(by_names.values())

    def _group_names(self, pair: Pair) -> dict[str, str]:
        """By hyperparameter: the name of its value."""
        flattened = f"{_joined(pair.optimizer, _GROUPS)}{pair.parameter}."
        if f"{flattened}lr" in self._metadata.items:
            return {name.removeprefix(flattened): name for name in self._metadata.items if name.startswith(flattened)}
        return self._of_tree[pair.optimizer][pair.parameter]

    def _split(self, base: str) -> tuple[str, str]:
        """`optim.state.0.weight` as `optim` and `0.weight`, confirmed by the groups."""
        place = -1
        while (place := base.find(_STATE, place + 1)) >= 0:
            optimizer, parameter = base[:place], base[place + len(_STATE) :]
            if optimizer and not optimizer.endswith("."):
                continue
            optimizer = optimizer.removesuffix(".")
            if f"{_joined(optimizer, _GROUPS)}{parameter}.lr" in self._metadata.items:
                return optimizer, parameter
            if parameter in self._of_tree.get(optimizer, {}):
                return optimizer, parameter
        msg = f"{self._folder}: {base} belongs to no param_group that is stored: its hyperparameters are unknown"
        raise CheckpointError(msg)

    def _tree_groups(self) -> dict[str, dict[str, dict[str, str]]]:
        """By optimizer and parameter: the names of its group's values, in the tree and the raw layout."""
        groups: dict[tuple[str, str], dict[str, str]] = {}
        for name in self._metadata.items:
            head, _, key = name.rpartition(".")
            head, _, index = head.rpartition(".")
            if index.isdecimal() and f".{head}.".endswith(f".{_GROUPS}"):
                optimizer = head.removesuffix(_GROUPS.removesuffix(".")).removesuffix(".")
                groups.setdefault((optimizer, index), {})[key] = name
        by_parameter: dict[str, dict[str, dict[str, str]]] = {}
        for (optimizer, _), names in groups.items():
            parameters = self._value(names["params"]) if "params" in names else []
            for parameter in parameters if isinstance(parameters, list) else []:
                by_parameter.setdefault(optimizer, {})[str(parameter)] = names
        return by_parameter

    def _value(self, name: str) -> object:
        if name not in self._values:
            (item, *more) = self._metadata.items[name]
            if more:
                msg = f"{self._folder}: {name} is stored in {1 + len(more)} chunks, expected one value"
                raise CheckpointError(msg)
            self._values[name] = value_of(read_item(self._folder, item), item)
        return self._values[name]


def _joined(optimizer: str, part: str) -> str:
    return f"{optimizer}.{part}" if optimizer else part


def _extent(item: Item) -> tuple[object, ...]:
    return item.offsets, item.sizes, item.whole
