"""Inputs that tell candidates apart.

Claimed: `separating` returns columns at which every two rows differ that differ at any column.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CANONICAL_NAN = 0x7FC00000
_LOW_WORD = 0xFFFFFFFF


def bits(values: Tensor) -> Tensor:
    """The bits of float32 values as int32, every NaN the same."""
    return values.contiguous().view(torch.int32).masked_fill(values.isnan(), _CANONICAL_NAN)


def agree(a: Tensor, b: Tensor) -> Tensor:
    """Where two float32 tensors have the same bits, one NaN being as good as another."""
    return bits(a) == bits(b)


def ulps(a: Tensor, b: Tensor) -> Tensor:
    """How many binary32 values lie between, int64; -1 where just one of them is NaN."""
    distance = (_ordinal(a) - _ordinal(b)).abs()
    return distance.masked_fill(a.isnan() & b.isnan(), 0).masked_fill(a.isnan() ^ b.isnan(), -1)


def ulps_apart(a: float, b: float) -> int:
    """The same for two binary32 values in Python floats."""
    return int(ulps(torch.tensor([a], dtype=torch.float32), torch.tensor([b], dtype=torch.float32)))


def _ordinal(values: Tensor) -> Tensor:
    word = values.contiguous().view(torch.int32).long()
    return torch.where(word < 0, -(word & 0x7FFFFFFF) - 1, word)  # -0 lies one below +0


def classes_of(results: Tensor) -> Tensor:
    """Number the distinct rows of int32 bits, shape (candidates, inputs): equal rows, equal number."""
    numbers: Tensor = torch.unique(results, dim=0, return_inverse=True)[1]
    return numbers


def separating(tables: list[Tensor], redundancy: int) -> Tensor:
    """Columns that together tell apart what any column tells apart.

    Greedy: each time the column that leaves the most classes of rows not yet told apart, over all tables.

    Args:
        tables: for each quantity the bits of its candidates' values, int32, shape (candidates, inputs).
        redundancy: how many disjoint sets of such columns to find, as far as there are.

    Returns:
        Indices of columns, at least one.
    """
    tables = [torch.unique(table, dim=0) for table in tables]
    free = torch.ones(tables[0].shape[1], dtype=torch.bool)
    chosen: list[int] = []
    for _ in range(redundancy):
        classes = [torch.zeros(len(table), dtype=torch.int64) for table in tables]
        while any(int(c.max()) + 1 < len(c) for c in classes):
            keys = [
                (c.unsqueeze(1) << 32) | (table.long() & _LOW_WORD) for c, table in zip(classes, tables, strict=True)
            ]
            scores = sum((_distinct(key) for key in keys), start=torch.zeros(len(free), dtype=torch.int64))
            best = int(scores.masked_fill(~free, -1).argmax())
            if not bool(free[best]) or int(scores[best]) <= sum(int(c.max()) + 1 for c in classes):
                break
            free[best] = False
            chosen.append(best)
            classes = [torch.unique(key[:, best], return_inverse=True)[1] for key in keys]
    return torch.tensor(chosen or [0])


def _distinct(keys: Tensor) -> Tensor:
    """How many different values each column holds."""
    ordered = keys.t().contiguous().sort(dim=1).values
    return 1 + (ordered.diff(dim=1) != 0).sum(dim=1)
