"""The sharpest bound over a cell of gradients: for the few coordinates that `search` can neither clear nor refute.

`search` bounds a cell by its ends, for both signs at once, and allows for the rounding of an update at any gradient:
cheap, and enough for nearly every coordinate.  Here a cell has a sign, its bound is the better of that one and the one
by `slopes`, and the rounding is that of the cell (`cell_slack`).

Claimed: at a gradient of the claim in no cell of `uncleared`, the op models of the guard deviate by no more than the
tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard.cell_slack import deviation_inflation, make_deviation_upper
from guarded_moments.reference.guard.cells import Terms, make_terms, make_uppers, make_value
from guarded_moments.reference.guard.closed_form import lifted
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.cut import make_cut
from guarded_moments.reference.guard.search import CellBounds, States, first_ends, floats_between
from guarded_moments.reference.guard.slopes import Point, make_point, make_slope_uppers

#: Halvings of a cell, and cells of one coordinate alive at a time, after which its cells are left as they are.
MAX_ROUNDS = 400
MAX_CELLS = 1 << 12


class SignedCells(NamedTuple):
    """Ranges of gradients of one sign, each of one coordinate; tensors of one shape."""

    coordinate: Tensor  #: int64: which one, by its position in the states
    sign: Tensor  #: float64, 1 or -1
    low: Tensor  #: float64: the smallest magnitude, a binary32 value
    high: Tensor  #: the largest

    def select(self, mask: Tensor) -> SignedCells:
        """The cells where `mask`."""
        places = mask.nonzero().flatten()
        return SignedCells(*(part[places] for part in self))

    @classmethod
    def joined(cls, *all_cells: SignedCells) -> SignedCells:
        """All of them, one after the other."""
        return cls(*(torch.cat(parts) for parts in zip(*all_cells, strict=True)))

    def halves(self) -> SignedCells:
        """Both halves of every cell, the lower ones first."""
        middle = make_cut(TorchBinary64(self.low.device))(self.low, self.high)
        return SignedCells.joined(self._replace(high=middle), self._replace(low=middle))

    @property
    def floats_inside(self) -> Tensor:
        """How many binary32 gradients a cell spans, less one; int64."""
        return floats_between(self.low, self.high)


class Uncleared(NamedTuple):
    """What a search leaves."""

    cells: SignedCells  #: at which the tolerance may be exceeded, in no order
    value: Tensor  #: the largest `step*|N|` seen of each coordinate, in units of the parameter; float64 (n,)
    gradient: Tensor  #: where, signed; float64 (n,)
    spent: Tensor  #: bool (n,): where the budget ran out, so that cells are wider than need be


def uncleared(constants: GuardConstants[float], states: States, shortest: int) -> Uncleared:
    """Split the gradients of the claim until each cell is cleared, is short, or exceeds the tolerance at both ends.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        states: coordinates in the guard's domain, float32, shape (n,).
        shortest: a cell that spans no more binary32 gradients is not split.
    """
    bounds, n = _SignedBounds(constants, states), len(states.m)
    cells = _first_cells(constants, states)
    final = [cells.select(torch.zeros_like(cells.coordinate, dtype=torch.bool))]
    found = Uncleared(
        final[0],
        torch.full((n,), -1.0, dtype=torch.float64),
        torch.zeros(n, dtype=torch.float64),
        torch.zeros(n, dtype=torch.bool),
    )
    for _ in range(MAX_ROUNDS):
        found = _noted(found, bounds, cells)
        cells = cells.select(bounds.highest(cells) > constants.threshold)
        found.spent.logical_or_(cells.coordinate.bincount(minlength=n) > MAX_CELLS)
        at_ends = torch.minimum(
            bounds.highest(cells._replace(high=cells.low)), bounds.highest(cells._replace(low=cells.high))
        )
        done = (at_ends > constants.threshold) | (cells.floats_inside <= shortest) | found.spent[cells.coordinate]
        final.append(cells.select(done))
        cells = cells.select(~done)
        if len(cells.coordinate) == 0:
            break
        cells = cells.halves()
    found.spent[cells.coordinate] = True
    return found._replace(cells=SignedCells.joined(*final, cells))


def _first_cells(constants: GuardConstants[float], states: States) -> SignedCells:
    ends = first_ends(constants, CellBounds(constants, states).scale())
    keep = ends[:-1] < ends[1:]
    keep[-1] |= ends[-1] == 0  # zero is all there is: no cell has a width
    coordinate = torch.arange(ends.shape[1]).expand_as(keep)[keep]
    low, high = ends[:-1][keep], ends[1:][keep]
    plus = SignedCells(coordinate, torch.ones_like(low), low, high)
    return SignedCells.joined(plus, plus._replace(sign=-plus.sign))


def _noted(found: Uncleared, bounds: _SignedBounds, cells: SignedCells) -> Uncleared:
    """With the values at the upper ends of cells, where they are larger."""
    values = bounds.value(cells.coordinate, cells.sign, cells.high)
    value = found.value.scatter_reduce(0, cells.coordinate, values, "amax")
    attains = (values >= value[cells.coordinate]) & (values > found.value[cells.coordinate])
    gradient = found.gradient.clone()
    gradient[cells.coordinate[attains]] = (cells.sign * cells.high)[attains]
    return found._replace(value=value, gradient=gradient)


class _SignedBounds:
    """The formulas of `cells`, `slopes` and `cell_slack`, for coordinates of one tensor in float64 tensors."""

    def __init__(self, constants: GuardConstants[float], states: States) -> None:
        op = TorchBinary64(states.m.device)
        self._constants, self._step = lifted(constants), constants.step
        self._m, self._m_hat = states.m.double(), states.m_hat.double()
        self._terms = make_terms(op)(self._constants, self._m, states.v.double(), self._m_hat, states.v_hat.double())
        self._point, self._value = make_point(op), make_value(op)
        self._by_ends, self._by_slopes = make_uppers(op), make_slope_uppers(op)
        self._deviation_upper = make_deviation_upper(op)

    def _at(self, coordinate: Tensor, g: Tensor) -> tuple[Terms[Tensor], Point[Tensor]]:
        terms = Terms(*(term[coordinate] for term in self._terms))
        return terms, self._point(self._constants, terms.v, terms.v_hat, terms.gap, g)

    def value(self, coordinate: Tensor, sign: Tensor, g: Tensor) -> Tensor:
        """The real-number deviation at gradients, as evaluated, in units of the parameter."""
        terms, point = self._at(coordinate, g)
        plus, minus = self._value(self._constants, terms.shift, terms.pull, point.end)
        return torch.where(sign > 0, plus, minus) * self._step

    def highest(self, cells: SignedCells) -> Tensor:
        """At least the bit-exact deviation at every gradient of each cell, in units of the parameter."""
        k, (terms, low), (_, high) = (
            self._constants,
            self._at(cells.coordinate, cells.low),
            self._at(cells.coordinate, cells.high),
        )
        plus, minus = self._by_ends(k, terms.shift, terms.pull, low.end, high.end)
        upper = torch.where(cells.sign > 0, plus, minus)
        plus, minus = self._by_slopes(k, terms.shift, terms.pull, low, high)
        by_slopes = torch.where(cells.sign > 0, plus, minus)
        upper = torch.where(cells.low > 0, torch.minimum(upper, by_slopes), upper)  # a slope needs a low end above 0
        m, m_hat = self._m[cells.coordinate], self._m_hat[cells.coordinate]
        return self._deviation_upper(k, upper, m, m_hat, low, high) * deviation_inflation()
