"""The largest deviation among the coordinates of a tensor, found without searching each of them to the end.

Claimed: `upper` is at least the bit-exact deviation of every coordinate at every gradient of the claim, and `deviation`
is attained.  Trusted: as for `decision`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case.decision import BLOCK, survivors
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.exact import search
from guarded_moments.reference.guard.search import CellBounds, Outcome, States, first_partition, slack_of


class Worst(NamedTuple):
    """The largest deviation found among coordinates of one tensor and op model."""

    coordinate: int | None  #: its position; None where none exceeds what was known before
    gradient: float  #: binary32
    deviation: float  #: bit-exact at that gradient, in units of the parameter
    upper: float  #: no gradient of any of the coordinates deviates by more (certified, rounding included)


def largest_deviation(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    *,
    known: float = 0.0,
    relative_gap: float = 1e-4,
    compiled: bool = False,
) -> Worst:
    """The largest deviation over coordinates and gradients, found to about `relative_gap` and confirmed bit for bit.

    Args:
        constants: of the tensor.
        trajectories: the op model.
        states: coordinates in the guard's domain.
        known: a deviation already found elsewhere (units of the parameter); smaller ones are not refined.
        relative_gap: how far the enclosure of the real supremum may stay open.
        compiled: let the compiled search clear what it can, as in `decide`.
    """
    worst = Worst(None, 0.0, known, known)
    if len(states.m) == 0:
        return worst
    if compiled:
        few = torch.arange(0, len(states.m), max(1, len(states.m) // BLOCK))
        worst = _placed(largest_deviation(constants, trajectories, states.select(few), known=known), few)
        left = _may_exceed(constants, states, worst.deviation)
        rest = largest_deviation(constants, trajectories, states.select(left), known=worst.deviation)
        upper = max(worst.upper, rest.upper)
        return (worst if rest.coordinate is None else _placed(rest, left))._replace(upper=upper)
    # A first look at everything raises the bar, so that few coordinates need a second.
    for begin in range(0, len(states.m), BLOCK):
        block = states.slice(begin, begin + BLOCK)
        look = first_partition(constants, CellBounds(constants, block), lambda best: torch.full_like(best, torch.inf))
        best = look.best.argmax().reshape(1)
        worst = _worse(worst, trajectories, block.select(best), look.best_gradient[best], begin + best)
    floor = worst.deviation / constants.step
    left = survivors(constants, states, lambda block: torch.full_like(block.m, floor, dtype=torch.float64))
    cleared_slack = max(
        float(slack_of(constants, states.slice(begin, begin + BLOCK)).max()) for begin in range(0, len(states.m), BLOCK)
    )
    cleared = math.nextafter(worst.deviation * bound_inflation() + cleared_slack, math.inf)
    worst = worst._replace(upper=max(worst.upper, cleared))
    for begin in range(0, len(left), BLOCK):
        index = left[begin : begin + BLOCK]
        block = states.select(index)
        found = enclose(constants, block, relative_gap=relative_gap, ignore_below=worst.deviation)
        most = float((found.upper + slack_of(constants, block)).max())
        worst = worst._replace(upper=max(worst.upper, math.nextafter(most, math.inf)))
        worst = _worse(worst, trajectories, block, found.gradient, index)
    return worst


def _may_exceed(constants: GuardConstants[float], states: States, deviation: float) -> Tensor:
    """The coordinates whose bit-exact deviation may exceed that one (units of the parameter): int64, ascending."""
    found = search(constants._replace(threshold=deviation), states)
    same = (states.m == states.m_hat) & (states.v == states.v_hat)  # the op model is a function
    return ((found.outcome != Outcome.CLEARED) & ~same).nonzero().flatten()


def _placed(worst: Worst, index: Tensor) -> Worst:
    """What was found among the coordinates at `index`, by its place among all."""
    return worst if worst.coordinate is None else worst._replace(coordinate=int(index[worst.coordinate]))


def _worse(worst: Worst, trajectories: Trajectories, states: States, gradient: Tensor, index: Tensor) -> Worst:
    """The larger of the worst so far and the op model's deviations at one gradient a coordinate."""
    deviation = trajectories.deviations(states, gradient.float())
    best = int(deviation.argmax())
    if float(deviation[best]) <= worst.deviation:
        return worst
    return worst._replace(
        coordinate=int(index[best]), gradient=float(gradient[best].float()), deviation=float(deviation[best])
    )
