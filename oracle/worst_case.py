"""Whether any gradient of the claim violates it, decided for every coordinate on the bit-exact op model.

1. Branch and bound in real arithmetic (`reference.guard.search`) drops every cell of gradients whose bound, plus the
   rounding slack of both trajectories, is within the tolerance.
2. In what is left the op model itself is asked: at the gradients that look worst, then over cells by the monotonicity
   of rounding, then, where a cell holds few enough binary32 values, at each of them.

Claimed: SAFE means that no binary32 `|g| <= G` violates; UNSAFE comes with a gradient at which the op model does;
UNDECIDED means that the stated budget ran out.  Trusted: the arithmetic, and the rounding slack
(its lemmas are proved one by one in `proofs`; that they compose is argued there, not yet derived by a program).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import (
    ENUMERABLE,
    CellBounds,
    Cells,
    States,
    allowance,
    enclose,
    first_partition,
    first_survivors,
    slack_of,
    split,
)

#: Coordinates searched together: their end points stay in a core's cache.
BLOCK = 1 << 11
#: Binary32 gradients enumerated together.
_ENUMERATION_BLOCK = 1 << 18
#: Halvings of a cell, and cells alive in one block, after which a coordinate is left undecided.
MAX_ROUNDS = 400
MAX_CELLS = 1 << 21
#: Gradients enumerated for one coordinate before it is left undecided; and where only a statistic depends on it.
MAX_ENUMERATED = 1 << 22
FEW_ENUMERATED = 1 << 14


class Verdict(IntEnum):
    """What is known about all gradients of a coordinate."""

    SAFE = 0
    UNSAFE = 1  #: with a witness
    UNDECIDED = 2  #: the budget ran out


class Decisions(NamedTuple):
    """One verdict per coordinate; tensors of shape (n,)."""

    verdict: Tensor  #: int8, of `Verdict`
    witness: Tensor  #: float32: a violating gradient where UNSAFE, else the worst at which the op model was asked
    deviation: Tensor  #: float64: the bit-exact deviation there, in units of the parameter; -1 where it was not asked


def decide(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    max_enumerated: int = MAX_ENUMERATED,
) -> Decisions:
    """Decide the claim for coordinates of one tensor that follow one op model.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        trajectories: the op model.
        states: coordinates in the guard's domain, shape (n,).
        max_enumerated: gradients enumerated for one coordinate before it is left undecided.
    """
    n = len(states.m)
    decisions = Decisions(
        torch.full((n,), Verdict.SAFE, dtype=torch.int8), torch.zeros(n), torch.full((n,), -1.0, dtype=torch.float64)
    )
    # Most coordinates are cleared by their first cells; the few others are then worked on together.
    left = _survivors(constants, states, lambda block: allowance(constants, block))
    for begin in range(0, len(left), BLOCK):
        index = left[begin : begin + BLOCK]
        for whole, part in zip(
            decisions, _decide_block(constants, trajectories, states.select(index), max_enumerated), strict=True
        ):
            whole[index] = part
    return decisions


def _survivors(constants: GuardConstants[float], states: States, cutoff: Callable[[States], Tensor]) -> Tensor:
    """The coordinates that their first cells do not clear, over all blocks."""
    blocks = [(begin, states.slice(begin, begin + BLOCK)) for begin in range(0, len(states.m), BLOCK)]
    found = [begin + first_survivors(constants, block, cutoff(block)) for begin, block in blocks]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _decide_block(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, max_enumerated: int
) -> Decisions:
    bounds = CellBounds(constants, states)
    allowed = allowance(constants, states)
    cells, best, gradient = first_partition(constants, bounds, lambda _best: allowed)
    n = len(states.m)
    verdict = torch.full((n,), Verdict.SAFE, dtype=torch.int8)
    decisions = Decisions(verdict, torch.zeros(n), torch.full((n,), -1.0, dtype=torch.float64))
    _try(constants, trajectories, states, decisions, torch.arange(n), best > allowed, gradient.float())
    # Where both states are one, so are both updates: the op model is a function.
    cells = cells.select(~((states.m == states.m_hat) & (states.v == states.v_hat))[cells.coordinate])
    enumerated = torch.zeros(n, dtype=torch.int64)
    for _ in range(MAX_ROUNDS):
        verdict[(enumerated > max_enumerated) & (verdict != Verdict.UNSAFE)] = Verdict.UNDECIDED
        cells = cells.select(verdict[cells.coordinate] == Verdict.SAFE)
        doubtful = _exceed_at_ends(bounds, cells, allowed) | (cells.floats_inside <= ENUMERABLE)
        asked = _ask_op_model(constants, trajectories, states, cells.select(doubtful), decisions, enumerated)
        cells = Cells.joined(cells.select(~doubtful), asked)
        if cells.coordinate.numel() == 0 or cells.coordinate.numel() > MAX_CELLS:
            break
        parents = cells.coordinate
        cells, values, at = split(bounds, cells)
        _try(constants, trajectories, states, decisions, parents, values > allowed[parents], at.float())
        upper = bounds.upper(cells.low, cells.high, cells.coordinate)
        cells = cells.select(upper > allowed[cells.coordinate])
    left = cells.coordinate[verdict[cells.coordinate] != Verdict.UNSAFE]
    verdict[left] = Verdict.UNDECIDED
    return decisions


def _exceed_at_ends(bounds: CellBounds, cells: Cells, allowed: Tensor) -> Tensor:
    """Where `|N|` exceeds what is allowed at an end of the cell: no bound can clear that."""
    exceeds = torch.zeros_like(cells.coordinate, dtype=torch.bool)
    for end in (cells.low, cells.high):
        exceeds |= torch.maximum(*bounds.value(end, cells.coordinate)) > allowed[cells.coordinate]
    return exceeds


def _ask_op_model(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    cells: Cells,
    decisions: Decisions,
    enumerated: Tensor,
) -> Cells:
    """Drop the cells that the op model clears, as a whole or gradient by gradient; returns those left to split."""
    small = cells.floats_inside <= ENUMERABLE
    inside = states.select(cells.coordinate)
    clear = trajectories.upper(inside, cells.low.g.float(), cells.high.g.float()) <= constants.threshold
    asked = cells.select(small & ~clear)
    first, count = asked.low.g.float().view(torch.int32).long(), asked.floats_inside + 1
    enumerated.index_add_(0, asked.coordinate, count)
    per_turn = max(1, _ENUMERATION_BLOCK // (ENUMERABLE + 1))
    for begin in range(0, len(count), per_turn):
        turn = slice(begin, begin + per_turn)
        repeats = count[turn]
        index = asked.coordinate[turn].repeat_interleave(repeats)
        start = (first[turn] - (repeats.cumsum(0) - repeats)).repeat_interleave(repeats)
        magnitude = (start + torch.arange(len(index))).to(torch.int32).view(torch.float32)
        everything = torch.ones_like(index, dtype=torch.bool)
        for sign in (1.0, -1.0):
            _try(constants, trajectories, states, decisions, index, everything, magnitude * sign)
    return cells.select(~small & ~clear)


def _try(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    decisions: Decisions,
    index: Tensor,
    chosen: Tensor,
    g: Tensor,
) -> None:
    """Evaluate the op model at gradients, and record what is worse than before."""
    index, g = index[chosen], g[chosen]
    if len(index) == 0:
        return
    deviation = trajectories.deviations(states.select(index), g)
    worst = decisions.deviation.scatter_reduce(0, index, deviation, "amax")
    attains = (deviation >= worst[index]) & (deviation > decisions.deviation[index])
    decisions.witness[index[attains]] = g[attains]
    decisions.deviation.copy_(worst)
    decisions.verdict[worst > constants.threshold] = Verdict.UNSAFE


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
) -> Worst:
    """The largest deviation over coordinates and gradients, found to about `relative_gap` and confirmed bit for bit.

    Args:
        constants: of the tensor.
        trajectories: the op model.
        states: coordinates in the guard's domain.
        known: a deviation already found elsewhere (units of the parameter); smaller ones are not refined.
        relative_gap: how far the enclosure of the real supremum may stay open.
    """
    worst = Worst(None, 0.0, known, known)
    # A first look at everything raises the bar, so that few coordinates need a second.
    for begin in range(0, len(states.m), BLOCK):
        block = states.slice(begin, begin + BLOCK)
        look = first_partition(constants, CellBounds(constants, block), lambda best: torch.full_like(best, torch.inf))
        best = look.best.argmax().reshape(1)
        worst = _worse(worst, trajectories, block.select(best), look.best_gradient[best], begin + best)
    floor = worst.deviation / constants.step
    left = _survivors(constants, states, lambda block: torch.full_like(block.m, floor, dtype=torch.float64))
    cleared_slack = max(
        (float(slack_of(constants, states.slice(b, b + BLOCK)).max()) for b in range(0, len(states.m), BLOCK)),
        default=0.0,
    )
    worst = worst._replace(upper=max(worst.upper, worst.deviation + cleared_slack))
    for begin in range(0, len(left), BLOCK):
        index = left[begin : begin + BLOCK]
        block = states.select(index)
        found = enclose(constants, block, relative_gap=relative_gap, ignore_below=worst.deviation)
        worst = worst._replace(upper=max(worst.upper, float((found.upper + slack_of(constants, block)).max())))
        worst = _worse(worst, trajectories, block, found.gradient, index)
    return worst


def _worse(worst: Worst, trajectories: Trajectories, states: States, gradient: Tensor, index: Tensor) -> Worst:
    """The larger of the worst so far and the op model's deviations at one gradient a coordinate."""
    deviation = trajectories.deviations(states, gradient.float())
    best = int(deviation.argmax())
    if float(deviation[best]) <= worst.deviation:
        return worst
    return worst._replace(
        coordinate=int(index[best]), gradient=float(gradient[best].float()), deviation=float(deviation[best])
    )
