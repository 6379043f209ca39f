"""The deviation of one coordinate against the gradient, as numbers to draw: samples, cells, and where the worst lies.

Claimed: `deviation` is bit-exact at each sampled gradient.  Between samples nothing is claimed; what is certain of all
gradients of a cell is its bound.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case.decision import exceed_at_ends
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import (
    CellBounds,
    Cells,
    States,
    allowance,
    first_partition,
    largest_gradient,
    slack_of,
    split,
)

#: Gradients sampled of each sign.
SAMPLES = 2000
#: Magnitudes from this share of the scale at which the denominator bends are drawn; below, the curve is flat.
_FROM = 2.0**-12
_ROUNDS = 12


class Curve(NamedTuple):
    """What `gmc explain --plot` draws; deviations in units of the parameter."""

    gradient: Tensor  #: float32 (2*SAMPLES + 1,), ascending, both signs and zero
    deviation: Tensor  #: float64, bit-exact at each
    cell_low: Tensor  #: float64 (k,): ends of the magnitudes of the cells that the search split or dropped last
    cell_high: Tensor
    cell_upper: Tensor  #: float64 (k,): no gradient of the cell deviates by more, of either sign
    scale: float  #: the magnitude at which the denominator bends


def deviation_curve(constants: GuardConstants[float], trajectories: Trajectories, states: States) -> Curve:
    """Sample one coordinate's deviation over all gradients of the claim, and bound it cell by cell.

    Args:
        constants: of the tensor.
        trajectories: the op model.
        states: one coordinate in the guard's domain, shape (1,).
    """
    bounds, limit = CellBounds(constants, states), largest_gradient(constants)
    scale = float(bounds.scale())
    first = max(min(scale * _FROM, limit * _FROM), 2.0**-149)
    magnitude = torch.logspace(
        torch.log10(torch.tensor(first, dtype=torch.float64)).item(),
        torch.log10(torch.tensor(limit, dtype=torch.float64)).item(),
        SAMPLES,
        dtype=torch.float64,
    )
    magnitude = magnitude.clamp(max=limit).float()
    gradient = torch.cat([-magnitude.flip(0), torch.zeros(1), magnitude])
    many = States(*(moment.expand(len(gradient)) for moment in states))
    cells = _final_cells(constants, bounds, states)
    upper = bounds.upper(cells.low, cells.high, cells.coordinate) * constants.step + slack_of(constants, states)
    order = cells.low.g.argsort()
    return Curve(
        gradient,
        trajectories.deviations(many, gradient),
        cells.low.g[order],
        cells.high.g[order],
        (upper * bound_inflation())[order],
        scale,
    )


def _final_cells(constants: GuardConstants[float], bounds: CellBounds, states: States) -> Cells:
    """The cells of the search for what the tolerance allows: each is dropped, or too short or too often cut."""
    allowed = allowance(constants, states)
    cells, _, _ = first_partition(constants, bounds, lambda best: torch.full_like(best, -1.0))  # all of them
    done = cells.select(torch.zeros(len(cells.coordinate), dtype=torch.bool))
    for _ in range(_ROUNDS):
        final = (bounds.upper(cells.low, cells.high, cells.coordinate) <= allowed) | (cells.floats_inside <= 1)
        final |= exceed_at_ends(bounds, cells, allowed)
        done = Cells.joined(done, cells.select(final))
        cells = cells.select(~final)
        if len(cells.coordinate) == 0:
            break
        cells, _, _ = split(bounds, cells)
    return Cells.joined(done, cells)
