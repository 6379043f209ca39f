"""Branch and bound over gradients, vectorised over coordinates: which coordinates are safe.

Cells are ranges of binary32 magnitudes, so that every gradient of the claim is in some cell.  A cell is dropped when
its upper bound is below a cutoff, and split otherwise.  Here the cutoff is `allowance`, what the tolerance leaves after
the rounding slack of both trajectories: a coordinate with no cell left is safe, and the oracle asks the bit-exact op
model about the rest (`oracle.worst_case`).  `enclosure` uses the same cells with another cutoff.

Claimed: a dropped cell holds no gradient above its cutoff.  Every loop has a budget; what it leaves is said.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard.allowance import make_allowance, make_update_slack
from guarded_moments.reference.guard.cells import End, Terms, make_end, make_lowers, make_terms, make_upper, make_value
from guarded_moments.reference.guard.closed_form import bound_inflation, lifted
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.cut import FIRST_ENDS, make_cut, make_first_end, make_scale

#: Below this many binary32 values a cell is not worth bounding: the op model is asked about each of them.
ENUMERABLE = 512


class Outcome(IntEnum):
    """What the search found out about a coordinate."""

    CLEARED = 0
    EXCEEDED = 1
    SPENT = 2


class States(NamedTuple):
    """Native and recovered moments of coordinates in the guard's domain: float32 tensors of one shape (n,)."""

    m: Tensor
    v: Tensor
    m_hat: Tensor
    v_hat: Tensor

    def select(self, index: Tensor) -> States:
        """The coordinates at an index or mask."""
        return States(*(moment[index] for moment in self))

    def slice(self, begin: int, end: int) -> States:
        """The coordinates from `begin` up to `end`, as views."""
        return States(*(moment[begin:end] for moment in self))


class Cells(NamedTuple):
    """Ranges of gradient magnitudes (binary32 values held in float64), each of one coordinate."""

    coordinate: Tensor  #: int64: which one, by its position in the states
    low: End[Tensor]
    high: End[Tensor]

    def select(self, mask: Tensor) -> Cells:
        """The cells where `mask`."""
        places = mask.nonzero().flatten()
        low, high = (End(*(part[places] for part in end)) for end in (self.low, self.high))
        return Cells(self.coordinate[places], low, high)

    @classmethod
    def joined(cls, first: Cells, second: Cells) -> Cells:
        """Both, one after the other."""
        low = End(*(torch.cat(pair) for pair in zip(first.low, second.low, strict=True)))
        high = End(*(torch.cat(pair) for pair in zip(first.high, second.high, strict=True)))
        return cls(torch.cat([first.coordinate, second.coordinate]), low, high)

    @property
    def floats_inside(self) -> Tensor:
        """How many binary32 magnitudes a cell spans, less one; int64."""
        return floats_between(self.low.g, self.high.g)


class CellBounds:
    """The formulas of `cells`, for coordinates of one tensor in float64 tensors."""

    def __init__(self, constants: GuardConstants[float], states: States) -> None:
        """Prepare what does not depend on the gradient.

        Args:
            constants: of the tensor.
            states: coordinates in the guard's domain.
        """
        op = TorchBinary64(states.m.device)
        self._constants = lifted(constants)
        self._terms = make_terms(op)(self._constants, *(moment.double() for moment in states))
        self._end, self._value, self._upper = make_end(op), make_value(op), make_upper(op)
        self._lowers = make_lowers(op)
        self._scale = make_scale(op)

    def _of(self, coordinate: Tensor | None) -> Terms[Tensor]:
        return self._terms if coordinate is None else Terms(*(term[coordinate] for term in self._terms))

    def scale(self) -> Tensor:
        """Where `H` starts to bend: the gradient magnitude at which `curvature*g*g` matches the rest; float64 (n,)."""
        return self._scale(self._constants, self._terms.v, self._terms.v_hat)

    def end(self, g: Tensor, coordinate: Tensor | None = None) -> End[Tensor]:
        """The reciprocals at gradients, of all coordinates (`g` of shape (..., n)) or of those named."""
        terms = self._of(coordinate)
        return self._end(self._constants, terms.v, terms.v_hat, terms.gap, g)

    def value(self, end: End[Tensor], coordinate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`|N|` at `+g` and at `-g`, as evaluated (without slack)."""
        terms = self._of(coordinate)
        return self._value(self._constants, terms.shift, terms.pull, end)

    def least(self, gradient: Tensor) -> Tensor:
        """At most `|N|` of each coordinate at a signed gradient, and at least 0."""
        terms = self._terms
        plus, minus = self._lowers(self._constants, terms.shift, terms.pull, self.end(gradient.abs()))
        return torch.where(gradient < 0, minus, plus).clamp_(min=0)

    def upper(self, low: End[Tensor], high: End[Tensor], coordinate: Tensor | None = None) -> Tensor:
        """At least `|N(g)|` for every `g` with `low.g <= |g| <= high.g`, of either sign."""
        terms = self._of(coordinate)
        return self._upper(self._constants, terms.shift, terms.pull, low, high)


class Partition(NamedTuple):
    """The state of a search after its first cells."""

    cells: Cells  #: that may exceed their coordinate's cutoff
    best: Tensor  #: the largest `|N|` seen, float64 (n,)
    best_gradient: Tensor  #: where, signed, float64 (n,)


def slack_of(constants: GuardConstants[float], states: States) -> Tensor:
    """How far the bit-exact deviation may be from `step*|N|`, in units of the parameter; float64 (n,)."""
    update_slack = make_update_slack(TorchBinary64(states.m.device))
    return update_slack(lifted(constants), *(moment.double() for moment in states)) * bound_inflation()


def allowance(constants: GuardConstants[float], states: States) -> Tensor:
    """The largest `|N|` at which the bit-exact deviation is certain to be within the tolerance; float64 (n,)."""
    inflation = torch.tensor(bound_inflation(), dtype=torch.float64)
    of_states = make_allowance(TorchBinary64(states.m.device))
    return of_states(lifted(constants), inflation, *(moment.double() for moment in states))


def largest_gradient(constants: GuardConstants[float]) -> float:
    """The largest binary32 gradient of the claim."""
    nearest = torch.tensor(constants.gradient_bound, dtype=torch.float64).float()
    if nearest.double() > constants.gradient_bound:
        nearest = torch.nextafter(nearest, torch.zeros_like(nearest))
    return float(nearest)


def first_ends(constants: GuardConstants[float], scale: Tensor) -> Tensor:
    """The ends of the first cells: binary32 magnitudes from 0 to the claim's bound, ascending; float64 (rows, n).

    Args:
        constants: of the tensor.
        scale: of each coordinate, as `CellBounds.scale` gives it, shape (n,).
    """
    op = TorchBinary64(scale.device)
    limit = op.constant(largest_gradient(constants))
    shares = torch.tensor(FIRST_ENDS, dtype=torch.float64).unsqueeze(1)
    return torch.cat([make_first_end(op)(shares, scale, limit), limit.expand_as(scale).unsqueeze(0)])


def floats_between(low: Tensor, high: Tensor) -> Tensor:
    """How many binary32 values lie between magnitudes that are binary32 values, one of the ends included; int64."""
    return high.float().view(torch.int32).long() - low.float().view(torch.int32).long()


def first_partition(
    constants: GuardConstants[float], bounds: CellBounds, cutoff: Callable[[Tensor], Tensor]
) -> Partition:
    """Evaluate all coordinates at a few gradients and keep the cells between them that may exceed the cutoff.

    Args:
        constants: of the tensor.
        bounds: of the coordinates.
        cutoff: gives each coordinate's cutoff from the largest `|N|` seen.
    """
    g = first_ends(constants, bounds.scale())
    ends = bounds.end(g)
    plus, minus = bounds.value(ends)
    best, row = torch.maximum(plus, minus).max(dim=0)
    column = torch.arange(g.shape[1])
    sign = torch.where(plus[row, column] >= minus[row, column], 1.0, -1.0)
    lows, highs = End(*(part[:-1] for part in ends)), End(*(part[1:] for part in ends))
    # The ends ascend to the limit; cells of no width are covered by their neighbours, unless zero is all there is.
    wide = lows.g < highs.g
    wide[-1] |= highs.g[-1] == 0
    keep = (bounds.upper(lows, highs) > cutoff(best)) & wide
    at_row, coordinate = keep.nonzero(as_tuple=True)
    low, high = (End(*(part[at_row, coordinate] for part in end)) for end in (lows, highs))
    return Partition(Cells(coordinate, low, high), best, g[row, column] * sign)


def first_survivors(constants: GuardConstants[float], states: States, cutoff: Tensor) -> Tensor:
    """The coordinates that their first cells do not clear of their cutoff on `|N|`: int64, ascending."""
    partition = first_partition(constants, CellBounds(constants, states), lambda _best: cutoff)
    return (torch.zeros_like(cutoff).index_fill_(0, partition.cells.coordinate, 1.0) > 0).nonzero().flatten()


class Cleared(NamedTuple):
    """One entry per coordinate."""

    cleared: Tensor  #: bool: no gradient of the claim can violate it, slack included
    best: Tensor  #: the largest `|N|` seen, float64


def cleared(constants: GuardConstants[float], states: States, rounds: int = 60) -> Cleared:
    """Where no gradient of the claim can violate it, slack included.

    A coordinate that is not cleared violates the claim, is within the slack of it, or ran out of `rounds`.
    """
    allowed, bounds = allowance(constants, states), CellBounds(constants, states)
    cells, best, _ = first_partition(constants, bounds, lambda _best: allowed)
    exceeded = best > allowed
    for _ in range(rounds):
        exceeded[cells.coordinate[cells.floats_inside <= 1]] = True  # neighbours: nothing is left to split
        cells = cells.select(~exceeded[cells.coordinate])
        if cells.coordinate.numel() == 0:
            break
        parents = cells.coordinate
        cells, values, _ = split(bounds, cells)
        best = best.scatter_reduce(0, parents, values, "amax")
        exceeded |= best > allowed
        upper = bounds.upper(cells.low, cells.high, cells.coordinate)
        cells = cells.select(upper > allowed[cells.coordinate])
    exceeded[cells.coordinate] = True
    return Cleared(~exceeded, best)


def split(bounds: CellBounds, cells: Cells) -> tuple[Cells, Tensor, Tensor]:
    """Cut every cell at a binary32 inside it.

    Returns:
        Both halves of each cell (the lower ones first), and `|N|` and the signed gradient at each cut.
    """
    middle = make_cut(TorchBinary64(cells.low.g.device))(cells.low.g, cells.high.g)
    end = bounds.end(middle, cells.coordinate)
    plus, minus = bounds.value(end, cells.coordinate)
    halves = Cells.joined(cells._replace(high=end), cells._replace(low=end))
    return halves, torch.maximum(plus, minus), torch.where(plus >= minus, middle, -middle)
