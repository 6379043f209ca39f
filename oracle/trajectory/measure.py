"""How far one run's parameters are from another's, and what is kept of a run.

Relative L2 comes first.  The largest single difference is reported beside it and says little after ten updates: a few
coordinates whose second moment is nearly zero move by whole learning rates after any disturbance, be it one ulp.

Claimed: sums are of exact differences of the binary32 parameters, in binary64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: Shares of the number of updates, one after the other some 40 % larger, are looked at.
_RATIO = math.sqrt(2.0)


@dataclass(frozen=True)
class Point:
    """Where a run is after an update, seen from the native run of the same data."""

    update: int  #: 1 is the first after resuming
    relative_l2: float  #: the distance, as a share of how far the native run has moved since it was resumed
    largest: float  #: of any parameter, in learning rates


@dataclass
class Course:
    """One run."""

    variant: str
    order: int  #: of the data
    closed: bool  #: with gradients of its own; else with the native run's
    points: list[Point] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  #: of each update, with gradients of its own only

    def at(self, update: int) -> Point:
        """The point after an update that was looked at."""
        return next(point for point in self.points if point.update == update)


def looked_at(updates: int) -> list[int]:
    """The updates after which runs are compared: the first ten, then fewer and fewer, and the last."""
    found, at = set(range(1, min(updates, 10) + 1)) | {updates}, 10.0
    while (at := at * _RATIO) < updates:
        found.add(round(at))
    for share in (20, 50, 100, 200, 500, 1000):  # round numbers, for tables
        if share < updates:
            found.add(share)
    return sorted(found)


class Parameters:
    """The parameters of an optimizer at one time."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._values = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]

    def seen_from(self, native: Parameters, begin: Parameters, rates: Sequence[float], update: int) -> Point:
        """How far these are from the native ones.

        Args:
            native: after the same update.
            begin: where both began.
            rates: the learning rate of each parameter.
            update: how many were made.
        """
        distance = moved = largest = 0.0
        for mine, own, first, rate in zip(self._values, native._values, begin._values, rates, strict=True):
            difference = mine.double() - own.double()
            distance += float(difference.square().sum())
            moved += float((own.double() - first.double()).square().sum())
            largest = max(largest, float(difference.abs().max()) / rate if difference.numel() else 0.0)
        relative = math.sqrt(distance / moved) if moved else math.inf if distance else 0.0
        return Point(update, relative, largest)


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """The learning rate of each parameter; 1 where it is 0, so that differences can be counted in it."""
    rates: list[float] = []
    for group in optimizer.param_groups:
        lr: Any = group["lr"]
        rates += [float(lr.item() if isinstance(lr, Tensor) else lr) or 1.0] * len(group["params"])
    return rates
