"""Whether any gradient of the claim violates it, decided for every coordinate on the bit-exact op model.

1. Branch and bound in real arithmetic (`reference.guard.search`) drops every cell of gradients whose bound, plus the
   rounding slack of both trajectories, is within the tolerance.
2. In what is left the op model itself is asked: at the gradients that look worst, then over cells by the monotonicity
   of rounding, then, where a cell holds few enough binary32 values, at each of them.

Claimed: SAFE means that no binary32 `|g| <= G` violates; UNSAFE comes with a gradient at which the op model does;
UNDECIDED means that the stated budget ran out.  Trusted: the arithmetic, and the rounding slack
(`proofs` derives it for every op model, and what is evaluated of a cell; that cells cover all gradients is argued).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.guard.closed_form import in_domain
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import (
    ENUMERABLE,
    CellBounds,
    Cells,
    States,
    allowance,
    first_partition,
    first_survivors,
    largest_gradient,
    split,
)

#: Coordinates searched together: their end points stay in a core's cache.
BLOCK = 1 << 11
#: Binary32 gradients enumerated together.
_ENUMERATION_BLOCK = 1 << 18
#: Halvings of a cell, and cells of one coordinate alive at a time, after which it is left undecided.
MAX_ROUNDS = 400
MAX_CELLS = 1 << 12
#: Gradients enumerated for one coordinate before it is left undecided; and where only a statistic depends on it.
MAX_ENUMERATED = 1 << 22
FEW_ENUMERATED = 1 << 14


class Verdict(IntEnum):
    """What is known about all gradients of a coordinate."""

    SAFE = 0
    UNSAFE = 1  #: with a witness
    UNDECIDED = 2  #: the budget ran out


class Certainty(IntEnum):
    """What is known of a coordinate's supremum."""

    EXACT = 0  #: `deviation` is the supremum
    ENCLOSED = 1  #: it lies between `deviation` and `upper`: there were more gradients to run than the budget allows
    OUTSIDE = 2  #: the state is outside the guard's domain; `deviation` is attained, nothing bounds it from above


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

    Outside the guard's domain (NaN, infinite, negative or huge moments) no bound holds, so that a coordinate there is
    UNSAFE if a few gradients show it, SAFE if both its states are the same numbers, and else UNDECIDED.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        trajectories: the op model.
        states: any coordinates, float32, shape (n,).
        max_enumerated: gradients enumerated for one coordinate before it is left undecided.
    """
    n = len(states.m)
    decisions = Decisions(
        torch.full((n,), Verdict.SAFE, dtype=torch.int8), torch.zeros(n), torch.full((n,), -1.0, dtype=torch.float64)
    )
    covered = covers(states)
    _decide_outside(constants, trajectories, states, (~covered).nonzero().flatten(), decisions)
    inside = covered.nonzero().flatten()
    # Most coordinates are cleared by their first cells; the few others are then worked on together.
    left = inside[survivors(constants, states.select(inside), lambda block: allowance(constants, block))]
    for begin in range(0, len(left), BLOCK):
        index = left[begin : begin + BLOCK]
        for whole, part in zip(
            decisions, _decide_block(constants, trajectories, states.select(index), max_enumerated), strict=True
        ):
            whole[index] = part
    return decisions


def covers(states: States) -> Tensor:
    """Where both states are in the guard's domain as numbers: minus zero counts as zero; a bool tensor (n,)."""
    return in_domain(states.m + 0.0, states.v + 0.0) & in_domain(states.m_hat + 0.0, states.v_hat + 0.0)


def _decide_outside(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, outside: Tensor, decisions: Decisions
) -> None:
    limit = largest_gradient(constants)
    probed = [sign * limit * share for share in (0.0, 2.0**-20, 2.0**-8, 0.5, 1.0) for sign in (1.0, -1.0)]
    same = (states.m == states.m_hat) & (states.v == states.v_hat)
    decisions.verdict[outside[~same[outside]]] = Verdict.UNDECIDED
    for gradient in probed if len(outside) else ():
        g = torch.full((len(states.m),), gradient)
        _try(constants, trajectories, states, decisions, outside, ~same[outside], g[outside])


def survivors(constants: GuardConstants[float], states: States, cutoff: Callable[[States], Tensor]) -> Tensor:
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
        _give_up(verdict, cells, enumerated > max_enumerated)
        cells = cells.select(verdict[cells.coordinate] == Verdict.SAFE)
        doubtful = exceed_at_ends(bounds, cells, allowed) | (cells.floats_inside <= ENUMERABLE)
        asked = _ask_op_model(
            constants, trajectories, states, cells.select(doubtful), decisions, enumerated, max_enumerated
        )
        cells = Cells.joined(cells.select(~doubtful), asked)
        _give_up(verdict, cells, cells.coordinate.bincount(minlength=n) > MAX_CELLS)
        cells = cells.select(verdict[cells.coordinate] == Verdict.SAFE)
        if cells.coordinate.numel() == 0:
            break
        parents = cells.coordinate
        cells, values, at = split(bounds, cells)
        _try(constants, trajectories, states, decisions, parents, values > allowed[parents], at.float())
        upper = bounds.upper(cells.low, cells.high, cells.coordinate)
        cells = cells.select(upper > allowed[cells.coordinate])
    _give_up(verdict, cells, torch.ones(n, dtype=torch.bool))
    return decisions


def _give_up(verdict: Tensor, cells: Cells, spent: Tensor) -> None:
    """Coordinates that spent their budget and still have cells are undecided, those found unsafe excepted."""
    left = cells.coordinate[spent[cells.coordinate]]
    verdict[left[verdict[left] == Verdict.SAFE]] = Verdict.UNDECIDED


def exceed_at_ends(bounds: CellBounds, cells: Cells, allowed: Tensor) -> Tensor:
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
    max_enumerated: int,
) -> Cells:
    """Drop the cells that the op model clears, as a whole or gradient by gradient; returns those left.

    Left are the long ones, to split, and the short ones of coordinates with no budget for all of theirs.
    """
    small = cells.floats_inside <= ENUMERABLE
    inside = states.select(cells.coordinate)
    clear = trajectories.upper(inside, cells.low.g.float(), cells.high.g.float()) <= constants.threshold
    asked = cells.select(small & ~clear)
    enumerated.index_add_(0, asked.coordinate, asked.floats_inside + 1)
    affordable = enumerated <= max_enumerated
    asked = asked.select(affordable[asked.coordinate])
    first, count = asked.low.g.float().view(torch.int32).long(), asked.floats_inside + 1
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
    return cells.select(~clear & ~(small & affordable[cells.coordinate]))


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
