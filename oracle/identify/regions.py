"""Which elements follow which candidate: the placements that torch's kernels are known to have, or ranges as seen.

Claimed: at every position of every size that was tried, a region's candidates have given the kernel's bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.oracle.identify.experiment import Trial
from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement

_SOME = next(iter(IMPLEMENTATIONS.values()))
_MOST_REGIONS = 4
_SHOWN_RANGES = 4
_PERIODS = range(2, 65)
_TURNS = 4  #: times that a period must fit into a tensor to be called one


def assign(placement: Placement, sizes: tuple[int, ...], options: StepOptions, threads: int = 1) -> Tensor:
    """The part, 0 or 1, of each element of tensors of these sizes, one after the other.

    `threads` are those of the run; tensors as small as those in which every position is examined are not split.
    """
    implementation = Implementation("", (_SOME.body, _SOME.body), placement, _SOME.constants, _SOME.evidence, "")
    known = {size: implementation.assign(size, options, threads) for size in set(sizes)}
    return torch.cat([known[size] for size in sizes])


@dataclass(frozen=True)
class Region:
    """Elements that follow the same candidates."""

    where: str  #: in words
    alive: tuple[int, ...]  #: indices of the candidates that reproduce them all; none if that is empty


def placed(trial: Trial, placement: Placement, sizes: tuple[int, ...], options: StepOptions) -> dict[int, list[int]]:
    """For each part that has elements, the candidates alive at all of them."""
    part = assign(placement, sizes, options)
    return {
        int(number): trial.alive[:, part == number].all(dim=1).nonzero().flatten().tolist()
        for number in part.unique().tolist()
    }


def covering(alive: Tensor) -> list[Tensor] | None:
    """Few disjoint masks of positions, each with a candidate alive at all of them; None where some position has none.

    Greedy: each time the candidate alive at most of the positions that are left.
    """
    left = torch.ones(alive.shape[1], dtype=torch.bool)
    masks: list[Tensor] = []
    while bool(left.any()):
        best = int((alive & left).sum(dim=1).argmax())
        mask = alive[best] & left
        if not bool(mask.any()) or len(masks) == _MOST_REGIONS:
            return None
        masks.append(mask)
        left &= ~mask
    return masks


def regions_as_seen(trial: Trial, sizes: tuple[int, ...]) -> list[Region]:
    """The regions of a quantity without any assumption on where they are; empty if there are none."""
    masks = covering(trial.alive)
    if masks is None:
        return []
    return [
        Region(describe(mask, sizes), tuple(trial.alive[:, mask].all(dim=1).nonzero().flatten().tolist()))
        for mask in masks
    ]


def describe(mask: Tensor, sizes: tuple[int, ...]) -> str:
    """A mask over tensors of these sizes in words: a rule if one of the simple ones holds, else the ranges."""
    if bool(mask.all()):
        return "all elements"
    pieces = list(mask.split(list(sizes)))
    for period in _PERIODS:
        tail = [torch.arange(size) >= size - size % period for size in sizes]
        for text, rule in ((f"the last numel % {period}", tail), (f"all but the last numel % {period}", None)):
            wanted = rule if rule is not None else [~piece for piece in tail]
            if all(torch.equal(a, b) for a, b in zip(pieces, wanted, strict=True)):
                return text
    for period in (period for period in _PERIODS if _TURNS * period <= max(sizes)):
        slots = {int(i) % period for piece in pieces for i in piece.nonzero()}
        if len(slots) < period and all(
            torch.equal(piece, torch.tensor([i % period in slots for i in range(len(piece))])) for piece in pieces
        ):
            return f"elements i with i % {period} in {sorted(slots)}"
    return "; ".join(f"{_ranges(piece)} of {size}" for piece, size in zip(pieces, sizes, strict=True) if piece.any())


def _ranges(piece: Tensor) -> str:
    steps = torch.cat((torch.zeros(1), piece.float(), torch.zeros(1))).diff()
    begins, ends = (steps > 0).nonzero().flatten().tolist(), (steps < 0).nonzero().flatten().tolist()
    shown = [f"{begin}..{end - 1}" if end - begin > 1 else f"{begin}" for begin, end in zip(begins, ends, strict=True)]
    more = len(shown) - _SHOWN_RANGES
    return ", ".join(shown[:_SHOWN_RANGES]) + (f" and {more} more ranges" if more > 0 else "")
