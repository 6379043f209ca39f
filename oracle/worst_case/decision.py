"""Whether any gradient of the claim violates it, decided for every coordinate on the bit-exact op model.

1. Branch and bound in real arithmetic drops every cell of gradients whose bound, plus the rounding slack of both
   trajectories, is within the tolerance: first cells of all coordinates (`reference.guard.search`), then cells of one
   sign with sharper bounds (`reference.guard.signed_cells`) of the few coordinates that are left.
2. In what is left the op model itself is asked: around the gradients that look worst, then over cells by the
   monotonicity of rounding, then, where a cell holds few enough binary32 values, at each of them.

Claimed: SAFE means that no binary32 `|g| <= G` violates; UNSAFE comes with a gradient at which the op model does;
UNDECIDED means that the stated budget ran out.  Trusted: the arithmetic, and the rounding slack
(`proofs` derives it for every op model, what is evaluated of a cell, and that neighbouring cells join).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.closed_form import in_domain
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.exact import search
from guarded_moments.reference.guard.search import (
    ENUMERABLE,
    CellBounds,
    Cells,
    Outcome,
    States,
    allowance,
    first_partition,
    first_survivors,
    largest_gradient,
)
from guarded_moments.reference.guard.signed_cells import SignedCells, uncleared

#: Coordinates searched together: their end points stay in a core's cache.
BLOCK = 1 << 11
#: Survivors of their first cells worked on together: few cells are left of each, so that calls cost more than work.
_TOGETHER = 1 << 13
#: Binary32 gradients enumerated together.
_ENUMERATION_BLOCK = 1 << 15
#: Gradients on either side of the worst seen at which the op model is asked first.
_AROUND = 512
#: Halvings of a cell, and long cells of one coordinate alive at a time, after which it is left undecided.
MAX_ROUNDS = 400
MAX_CELLS = 1 << 14
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
    *,
    compiled: bool = False,
) -> Decisions:
    """Decide the claim for coordinates of one tensor that follow one op model.

    Outside the guard's domain (NaN, infinite, negative or huge moments) no bound holds, so that a coordinate there is
    UNSAFE if a few gradients show it, SAFE if both its states are the same numbers, and else UNDECIDED.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        trajectories: the op model.
        states: any coordinates, float32, shape (n,).
        max_enumerated: gradients enumerated for one coordinate before it is left undecided.
        compiled: let the compiled search clear what it can, and point at gradients: worth its compilation, of seconds,
            from a million coordinates on.
    """
    n = len(states.m)
    decisions = Decisions(
        torch.full((n,), Verdict.SAFE, dtype=torch.int8), torch.zeros(n), torch.full((n,), -1.0, dtype=torch.float64)
    )
    covered = covers(states)
    _decide_outside(constants, trajectories, states, (~covered).nonzero().flatten(), decisions)
    inside = covered.nonzero().flatten()
    if compiled:
        left = inside[_searched(constants, trajectories, states, inside, decisions)]
    else:  # most coordinates are cleared by their first cells; the few others are then worked on together
        left = inside[survivors(constants, states.select(inside), lambda block: allowance(constants, block))]
    for begin in range(0, len(left), _TOGETHER):
        index = left[begin : begin + _TOGETHER]
        for whole, part in zip(
            decisions, _decide_together(constants, trajectories, states.select(index), max_enumerated), strict=True
        ):
            whole[index] = part
    return decisions


def _searched(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, index: Tensor, decisions: Decisions
) -> Tensor:
    """Which of the coordinates at `index` the compiled search leaves open: neither cleared nor seen to violate."""
    found = search(constants, states.select(index))
    exceeded = found.outcome == Outcome.EXCEEDED
    _try(constants, trajectories, states, decisions, index[exceeded], found.gradient[exceeded])
    return ((found.outcome != Outcome.CLEARED) & (decisions.verdict[index] != Verdict.UNSAFE)).nonzero().flatten()


def covers(states: States) -> Tensor:
    """Where both states are in the guard's domain as numbers: minus zero counts as zero; a bool tensor (n,)."""
    return in_domain(states.m + 0.0, states.v + 0.0) & in_domain(states.m_hat + 0.0, states.v_hat + 0.0)


def _decide_outside(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, outside: Tensor, decisions: Decisions
) -> None:
    same = (states.m == states.m_hat) & (states.v == states.v_hat)
    different = outside[~same[outside]]
    decisions.verdict[different] = Verdict.UNDECIDED
    for gradient in probes(largest_gradient(constants)):
        _try(constants, trajectories, states, decisions, different, torch.full((len(different),), gradient))


def probes(limit: float) -> list[float]:
    """The few gradients of the claim that show what they can of a coordinate outside the guard's domain."""
    return [sign * limit * share for share in (0.0, 2.0**-20, 2.0**-8, 0.5, 1.0) for sign in (1.0, -1.0)]


def survivors(constants: GuardConstants[float], states: States, cutoff: Callable[[States], Tensor]) -> Tensor:
    """The coordinates that their first cells do not clear, over all blocks."""
    blocks = [(begin, states.slice(begin, begin + BLOCK)) for begin in range(0, len(states.m), BLOCK)]
    found = [begin + first_survivors(constants, block, cutoff(block)) for begin, block in blocks]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _decide_together(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, max_enumerated: int
) -> Decisions:
    n = len(states.m)
    verdict = torch.full((n,), Verdict.SAFE, dtype=torch.int8)
    decisions = Decisions(verdict, torch.zeros(n), torch.full((n,), -1.0, dtype=torch.float64))
    allowed = allowance(constants, states)
    first = first_partition(constants, CellBounds(constants, states), lambda _best: allowed)
    exceeding = (first.best > allowed).nonzero().flatten()
    _try(constants, trajectories, states, decisions, exceeding, first.best_gradient[exceeding].float())
    # Where both states are one, so are both updates: the op model is a function.
    same = (states.m == states.m_hat) & (states.v == states.v_hat)
    left = ((verdict == Verdict.SAFE) & ~same).nonzero().flatten()
    found = uncleared(constants, states.select(left), ENUMERABLE)
    cells = found.cells._replace(coordinate=left[found.cells.coordinate])
    _ask_around(constants, trajectories, states, decisions, cells, left, found.gradient)
    _enumerate(constants, trajectories, states, decisions, cells, max_enumerated)
    return decisions


def exceed_at_ends(bounds: CellBounds, cells: Cells, allowed: Tensor) -> Tensor:
    """Where `|N|` exceeds what is allowed at an end of the cell: no bound can clear that."""
    exceeds = torch.zeros_like(cells.coordinate, dtype=torch.bool)
    for end in (cells.low, cells.high):
        exceeds |= torch.maximum(*bounds.value(end, cells.coordinate)) > allowed[cells.coordinate]
    return exceeds


def _ask_around(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    decisions: Decisions,
    cells: SignedCells,
    index: Tensor,
    gradient: Tensor,
) -> None:
    """Ask the op model around the worst gradient seen of each coordinate with cells: nearly all that violate do there.

    `index` and `gradient` (signed, float64) are of the coordinates that were searched.
    """
    limit = bits_of(largest_gradient(constants))
    for reach in (0, _AROUND):
        asked = torch.isin(index, cells.coordinate) & (decisions.verdict[index] == Verdict.SAFE)
        worst, offsets = gradient[asked], torch.arange(-reach, reach + 1, dtype=torch.int32).unsqueeze(1)
        bits = (worst.abs().float().view(torch.int32) + offsets).clamp_(0, limit)
        g = bits.view(torch.float32) * torch.where(worst < 0, -1.0, 1.0)
        coordinate = index[asked].expand_as(g).reshape(-1)
        _try(constants, trajectories, states, decisions, coordinate, g.reshape(-1))


def _enumerate(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    decisions: Decisions,
    cells: SignedCells,
    max_enumerated: int,
) -> None:
    """Ask the op model about every gradient of cells: by monotonicity over many, else one by one.

    Coordinates for which the budget does not suffice are undecided.
    """
    n, verdict = len(states.m), decisions.verdict
    cells = _not_cleared_by_monotonicity(constants, trajectories, states, verdict, cells)
    inside = torch.zeros(n, dtype=torch.int64).index_add_(0, cells.coordinate, cells.floats_inside + 1)
    _give_up(verdict, cells, inside > max_enumerated)
    cells = cells.select(verdict[cells.coordinate] == Verdict.SAFE)
    per_turn = max(1, _ENUMERATION_BLOCK // (ENUMERABLE + 1))
    for begin in range(0, len(cells.coordinate), per_turn):
        turn = SignedCells(*(part[begin : begin + per_turn] for part in cells))
        turn = turn.select(verdict[turn.coordinate] == Verdict.SAFE)
        count, first = turn.floats_inside + 1, turn.low.float().view(torch.int32).long()
        start = (first - (count.cumsum(0) - count)).repeat_interleave(count)
        magnitude = (start + torch.arange(len(start))).to(torch.int32).view(torch.float32)
        index, sign = (part.repeat_interleave(count) for part in (turn.coordinate, turn.sign.float()))
        _try(constants, trajectories, states, decisions, index, magnitude * sign)


def _not_cleared_by_monotonicity(
    constants: GuardConstants[float], trajectories: Trajectories, states: States, verdict: Tensor, cells: SignedCells
) -> SignedCells:
    """The cells left, split until each is short; coordinates with too many of them are given up."""
    short = [cells.select(torch.zeros_like(cells.coordinate, dtype=torch.bool))]
    for _ in range(MAX_ROUNDS):
        cells = cells.select(verdict[cells.coordinate] == Verdict.SAFE)
        near, far = ((end * cells.sign).float() for end in (cells.low, cells.high))
        cells = cells.select(trajectories.upper(states.select(cells.coordinate), near, far) > constants.threshold)
        is_short = cells.floats_inside <= ENUMERABLE
        short.append(cells.select(is_short))
        cells = cells.select(~is_short)
        if len(cells.coordinate) == 0:
            break
        cells = cells.halves()
        _give_up(verdict, cells, cells.coordinate.bincount(minlength=len(verdict)) > MAX_CELLS)
    _give_up(verdict, cells, torch.ones_like(verdict, dtype=torch.bool))
    return SignedCells.joined(*short)


def _give_up(verdict: Tensor, cells: SignedCells, spent: Tensor) -> None:
    """Coordinates that spent their budget and still have cells are undecided, those found unsafe excepted."""
    left = cells.coordinate[spent[cells.coordinate]]
    verdict[left[verdict[left] == Verdict.SAFE]] = Verdict.UNDECIDED


def _try(
    constants: GuardConstants[float],
    trajectories: Trajectories,
    states: States,
    decisions: Decisions,
    index: Tensor,
    g: Tensor,
) -> None:
    """Evaluate the op model at gradients, and record what is worse than before."""
    if len(index) == 0:
        return
    deviation = trajectories.deviations(states.select(index), g)
    worst = decisions.deviation.scatter_reduce(0, index, deviation, "amax")
    attains = (deviation >= worst[index]) & (deviation > decisions.deviation[index])
    decisions.witness[index[attains]] = g[attains]
    decisions.deviation.copy_(worst)
    decisions.verdict[worst > constants.threshold] = Verdict.UNSAFE
