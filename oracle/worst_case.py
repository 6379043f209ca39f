"""Whether any gradient of the claim violates it, decided for every coordinate on the bit-exact op model.

1. Branch and bound in real arithmetic (`reference.guard.search`) drops every cell of gradients whose bound, plus the
   rounding slack of both trajectories, is within the tolerance.
2. In what is left the op model itself is asked: at the gradients that look worst, then over cells by the monotonicity of
   rounding, then, where a cell holds few enough binary32 values, at each of them.

Claimed: SAFE means that no binary32 `|g| <= G` violates; UNSAFE comes with a gradient at which the op model does;
UNDECIDED means that the stated budget ran out.  Trusted: the slack (proved in `proofs`, link by link), the arithmetic.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.guard.cells import CellBounds, Cells, States
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import ENUMERABLE, allowance, enclose, first_partition, split

#: Coordinates searched together: their end points stay in a core's cache.
BLOCK = 1 << 12
#: Binary32 gradients enumerated together.
_ENUMERATION_BLOCK = 1 << 18
#: Halvings of a cell, and cells alive in one block, after which a coordinate is left undecided.
MAX_ROUNDS = 400
MAX_CELLS = 1 << 21


class Verdict(IntEnum):
    """What is known about all gradients of a coordinate."""

    SAFE = 0
    UNSAFE = 1  #: with a witness
    UNDECIDED = 2  #: the budget ran out


class Decisions(NamedTuple):
    """One verdict per coordinate; tensors of shape (n,)."""

    verdict: Tensor  #: int8, of `Verdict`
    witness: Tensor  #: float32: a violating gradient where UNSAFE, else the worst of those looked at
    deviation: Tensor  #: float64: the bit-exact deviation at the witness, in units of the parameter


def decide(constants: GuardConstants, trajectories: Trajectories, states: States) -> Decisions:
    """Decide the claim for coordinates of one tensor that follow one op model.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        trajectories: the op model.
        states: coordinates in the guard's domain, shape (n,).
    """
    parts = [
        _decide_block(constants, trajectories, states.select(torch.arange(begin, min(begin + BLOCK, len(states.m)))))
        for begin in range(0, len(states.m), BLOCK)
    ]
    if not parts:
        empty = torch.empty(0)
        return Decisions(empty.to(torch.int8), empty, empty.double())
    return Decisions(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _decide_block(constants: GuardConstants, trajectories: Trajectories, states: States) -> Decisions:
    bounds = CellBounds(constants, states)
    allowed = allowance(constants, states)
    cells, _, gradient = first_partition(constants, bounds, allowed)
    witness = gradient.float()
    deviation = trajectories.deviations(states, witness)
    verdict = torch.where(deviation > constants.threshold, Verdict.UNSAFE, Verdict.SAFE).to(torch.int8)
    decisions = Decisions(verdict, witness, deviation)
    for _ in range(MAX_ROUNDS):
        cells = cells.select(verdict[cells.index] != Verdict.UNSAFE)
        cells = _ask_op_model(constants, trajectories, states, cells, decisions)
        if cells.index.numel() == 0 or cells.index.numel() > MAX_CELLS:
            break
        parents = cells.index
        cells, values, at = split(bounds, cells)
        _try(constants, trajectories, states, decisions, parents, values > allowed[parents], at.float())
        cells = cells.select(bounds.upper(cells) > allowed[cells.index])
    left = cells.index[verdict[cells.index] != Verdict.UNSAFE]
    verdict[left] = Verdict.UNDECIDED
    return decisions


def _ask_op_model(
    constants: GuardConstants, trajectories: Trajectories, states: States, cells: Cells, decisions: Decisions
) -> Cells:
    """Drop the cells that the op model clears, as a whole or gradient by gradient; returns those left to split."""
    small = cells.floats_inside <= ENUMERABLE
    inside = states.select(cells.index)
    clear = trajectories.upper(inside, cells.low.float(), cells.high.float()) <= constants.threshold
    enumerated = cells.select(small & ~clear)
    first, count = enumerated.low.float().view(torch.int32).long(), enumerated.floats_inside + 1
    per_turn = max(1, _ENUMERATION_BLOCK // (ENUMERABLE + 1))
    for begin in range(0, len(count), per_turn):
        turn = slice(begin, begin + per_turn)
        repeats = count[turn]
        index = enumerated.index[turn].repeat_interleave(repeats)
        start = (first[turn] - (repeats.cumsum(0) - repeats)).repeat_interleave(repeats)
        magnitude = (start + torch.arange(len(index))).to(torch.int32).view(torch.float32)
        everything = torch.ones_like(index, dtype=torch.bool)
        for sign in (1.0, -1.0):
            _try(constants, trajectories, states, decisions, index, everything, magnitude * sign)
    return cells.select(~small & ~clear)


def _try(  # noqa: PLR0913 - the search's state
    constants: GuardConstants,
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
    """The coordinate with the largest deviation found, of one tensor and op model."""

    index: int
    gradient: float  #: binary32
    deviation: float  #: bit-exact at that gradient, in units of the parameter
    upper: float  #: no gradient of any coordinate deviates by more


def largest_deviation(
    constants: GuardConstants,
    trajectories: Trajectories,
    states: States,
    *,
    known: float = 0.0,
    relative_gap: float = 1e-4,
) -> Worst | None:
    """The largest deviation over coordinates and gradients, found to about `relative_gap` and confirmed bit for bit.

    Args:
        constants: of the tensor.
        trajectories: the op model.
        states: coordinates in the guard's domain.
        known: a deviation already found elsewhere (units of the parameter); smaller ones are not refined.
        relative_gap: how far the enclosure of the real supremum may stay open.

    Returns:
        None where no coordinate exceeds `known`.
    """
    worst, upper = None, known
    for begin in range(0, len(states.m), BLOCK):
        block = states.select(torch.arange(begin, min(begin + BLOCK, len(states.m))))
        found = enclose(constants, block, relative_gap=relative_gap, ignore_below=known)
        upper = max(upper, float(found.upper.max()))
        deviation = trajectories.deviations(block, found.gradient.float())
        best = int(deviation.argmax())
        if float(deviation[best]) > known:
            known = float(deviation[best])
            worst = Worst(begin + best, float(found.gradient[best]), known, upper)
    return None if worst is None else worst._replace(upper=upper)
