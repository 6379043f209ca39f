"""Branch and bound over gradients, vectorised over coordinates: which coordinates are safe, and where the worst lies.

Cells are ranges of binary32 magnitudes, so that every gradient of the claim is in some cell.  A cell is dropped when
its upper bound is below a cutoff, and split otherwise.  Two searches use it:

* the oracle's decision (`oracle.worst_case`): the cutoff is `allowance`, what the tolerance leaves after the rounding
  slack of both trajectories.  A coordinate with no cell left is safe; the rest is decided by the bit-exact op model.
* `enclose`: the cutoff is a little above the best value seen, which yields a lower and an upper end for the supremum.

Claimed: a dropped cell holds no gradient above its cutoff.  Every loop has a budget; what it leaves is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard.cells import CellBounds, Cells, States
from guarded_moments.reference.guard.closed_form import bound_inflation, trajectory_slack
from guarded_moments.reference.guard.constants import GuardConstants

#: End points of the first cells, in units of the scale at which the denominator bends; the last is the bound itself.
_FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)
#: Below this many binary32 values a cell is not worth bounding: the op model is asked about each of them.
ENUMERABLE = 512
#: A cell whose ends are further apart than this ratio is cut at the ratio, else in the middle.
_LONG = 16.0
_CUT = 4.0


class Partition(NamedTuple):
    """The state of a search after its first cells."""

    cells: Cells  #: that may exceed their coordinate's cutoff
    best: Tensor  #: the largest `|N|` seen, float64 (n,)
    best_gradient: Tensor  #: where, signed, float64 (n,)


def slack_of(constants: GuardConstants, states: States) -> Tensor:
    """How far the bit-exact deviation may be from `step*|N|`, in units of the parameter; float64 (n,)."""
    op = TorchBinary64(states.m.device)
    total = torch.zeros_like(states.m, dtype=torch.float64)
    for m, v in ((states.m, states.v), (states.m_hat, states.v_hat)):
        root = (constants.radicand * v.double()).sqrt()
        total += trajectory_slack(op, constants, m.double(), (root + constants.eps).reciprocal())
    return (constants.step * total + 2 * constants.slack_floor) * bound_inflation()


def allowance(constants: GuardConstants, states: States) -> Tensor:
    """The largest `|N|` at which the bit-exact deviation is certain to be within the tolerance; float64 (n,)."""
    return (constants.threshold - slack_of(constants, states)) / constants.step / bound_inflation()


def first_partition(constants: GuardConstants, bounds: CellBounds, cutoff: Callable[[Tensor], Tensor]) -> Partition:
    """Evaluate all coordinates at a few gradients and keep the cells between them that may exceed the cutoff.

    Args:
        constants: of the tensor.
        bounds: of the coordinates.
        cutoff: gives each coordinate's cutoff from the largest `|N|` seen.
    """
    scale = bounds.scale()
    ends = torch.tensor([*_FIRST_ENDS, torch.inf], dtype=torch.float64).unsqueeze(1)
    finite = torch.where(ends.isinf(), constants.gradient_bound, ends.nan_to_num(posinf=0.0) * scale)
    limit = float(torch.tensor(constants.gradient_bound, dtype=torch.float64).float())
    if limit > constants.gradient_bound:  # the last binary32 not above the bound
        limit = float(torch.nextafter(torch.tensor(limit), torch.tensor(0.0)))
    g = finite.float().clamp_(max=limit).double()
    reciprocal, difference = bounds.at(g)
    plus, minus = bounds.values(g, reciprocal, difference)
    best, row = torch.maximum(plus, minus).max(dim=0)
    column = torch.arange(g.shape[1])
    sign = torch.where(plus[row, column] >= minus[row, column], 1.0, -1.0)
    keep = (bounds.upper_of_rows(g, reciprocal, difference) > cutoff(best)) & (g[:-1] < g[1:])
    at_row, index = keep.nonzero(as_tuple=True)
    cells = Cells(
        index,
        g[at_row, index],
        g[at_row + 1, index],
        reciprocal[at_row, index],
        reciprocal[at_row + 1, index],
        difference[at_row, index],
        difference[at_row + 1, index],
    )
    return Partition(cells, best, g[row, column] * sign)


def split(bounds: CellBounds, cells: Cells) -> tuple[Cells, Tensor, Tensor]:
    """Cut every cell at a binary32 inside it.

    Returns:
        Both halves of each cell (the lower ones first), and `|N|` and the signed gradient at each cut.
    """
    middle = torch.where(cells.high > _LONG * cells.low, _CUT * cells.low, 0.5 * (cells.low + cells.high))
    middle = torch.where(cells.low > 0, middle, 0.5 * cells.high).float().double()
    reciprocal, difference = bounds.at(middle, cells.coordinate)
    lower = cells._replace(high=middle, reciprocal_high=reciprocal, difference_high=difference)
    upper = cells._replace(low=middle, reciprocal_low=reciprocal, difference_low=difference)
    plus, minus = bounds.values(middle, reciprocal, difference, cells.coordinate)
    return Cells.joined(lower, upper), torch.maximum(plus, minus), torch.where(plus >= minus, middle, -middle)


class Enclosure(NamedTuple):
    """What is known of each coordinate's supremum of `step*|N|`, in units of the parameter; float64 (n,)."""

    lower: Tensor
    upper: Tensor
    gradient: Tensor  #: where `lower` is attained, signed


def enclose(
    constants: GuardConstants,
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
    for _ in range(rounds):
        cells = cells.select(cells.floats_inside > 1)
        if cells.coordinate.numel() == 0:
            break
        parents = cells.coordinate
        cells, values, at = split(bounds, cells)
        best, gradient = _improve(best, gradient, parents, values, at)
        cells = cells.select(bounds.upper(cells) > cutoff(best)[cells.coordinate])
    upper = cutoff(best)  # cutoffs only grow: whatever was dropped earlier is below the last one too
    if cells.coordinate.numel():
        upper = upper.scatter_reduce(0, cells.coordinate, bounds.upper(cells), "amax")
    step = constants.step
    return Enclosure(best * step, upper * step * bound_inflation(), gradient)


def _improve(best: Tensor, gradient: Tensor, index: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of what was best and the new values, with the gradient that attains it."""
    improved = best.scatter_reduce(0, index, values, "amax")
    attains = values >= improved[index]
    gradient = gradient.clone()
    gradient[index[attains]] = at[attains]
    return improved, gradient
