"""The supremum of a coordinate's deviation in real arithmetic, enclosed: branch and bound, vectorised over coordinates.

The cells and bounds are those of `search`, and the cutoff is a little above the best value seen.

Claimed: the supremum over all gradients of the claim lies between both ends of `enclose`, their rounding included.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import CellBounds, States, first_partition, split


class Enclosure(NamedTuple):
    """What is known of each coordinate's supremum of `step*|N|`, in units of the parameter; float64 (n,)."""

    lower: Tensor  #: rounded down, at least 0
    upper: Tensor  #: rounded up
    gradient: Tensor  #: where `lower` is attained, signed


def enclose(
    constants: GuardConstants[float],
    states: States,
    *,
    relative_gap: float = 1e-4,
    ignore_below: float = 0.0,
    rounds: int = 200,
) -> Enclosure:
    """Enclose the supremum of the real-arithmetic deviation over all gradients of the claim.

    Args:
        constants: of the tensor.
        states: coordinates in the guard's domain.
        relative_gap: stop where the upper end is at most this share above the lower.
        ignore_below: coordinates whose supremum is at most this (units of the parameter) are not refined.
        rounds: how often cells may be halved; what is left then is in the upper end.
    """
    bounds = CellBounds(constants, states)
    floor = ignore_below / constants.step

    def cutoff(best: Tensor) -> Tensor:
        return (best * (1 + relative_gap)).clamp(min=floor)

    cells, best, gradient = first_partition(constants, bounds, cutoff)
    unsplit = torch.zeros_like(best)  # bounds of cells between neighbours
    for _ in range(rounds):
        whole = cells.floats_inside <= 1
        ended = cells.select(whole)
        unsplit = unsplit.scatter_reduce(
            0, ended.coordinate, bounds.upper(ended.low, ended.high, ended.coordinate), "amax"
        )
        cells = cells.select(~whole)
        if cells.coordinate.numel() == 0:
            break
        parents = cells.coordinate
        cells, values, at = split(bounds, cells)
        best, gradient = _improve(best, gradient, parents, values, at)
        cells = cells.select(bounds.upper(cells.low, cells.high, cells.coordinate) > cutoff(best)[cells.coordinate])
    # Cutoffs only grow: whatever was dropped earlier is below the last one too.
    upper = torch.maximum(cutoff(best), unsplit)
    if cells.coordinate.numel():
        left = bounds.upper(cells.low, cells.high, cells.coordinate)
        upper = upper.scatter_reduce(0, cells.coordinate, left, "amax")
    return rounded_outward(constants, bounds, upper, gradient)


def rounded_outward(constants: GuardConstants[float], bounds: CellBounds, upper: Tensor, gradient: Tensor) -> Enclosure:
    """The enclosure in units of the parameter, the roundings of its ends included.

    Args:
        constants: of the tensor; the step size is a value of the op model's format, and held exactly.
        bounds: of the coordinates.
        upper: at least the supremum of each coordinate's `|N|`, float64 (n,).
        gradient: where the lower end is taken, signed, float64 (n,).
    """
    infinity, zero = torch.tensor(torch.inf, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    lower = torch.nextafter(bounds.least(gradient) * constants.step, -infinity)
    outward = torch.where(upper > 0, torch.nextafter(upper * constants.step, infinity), zero)  # nothing times it is 0
    return Enclosure(lower.clamp_(min=zero), outward, gradient)


def _improve(best: Tensor, gradient: Tensor, index: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of what was best and the new values, with the gradient that attains it."""
    improved = best.scatter_reduce(0, index, values, "amax")
    attains = values >= improved[index]
    gradient = gradient.clone()
    gradient[index[attains]] = at[attains]
    return improved, gradient
