"""The choice of grids from the data: from where to where each moment's levels reach.

The range is the largest lever on the bit rate.  Both ends of both moments' grids are taken from quantiles of the data,
and which quantiles is found by descending over one end after the other, on a sample of the tensor, each time trying all
candidates at once; the cost is the number of coordinates that the guard rejects.  Where runs of coordinates have grids
of their own, each run has its own quantiles, and all runs of a tensor the same choice among them.

Claimed: nothing but that the result is grids, and the same for the same data.  Whatever they are, the guard decides
with the decoded values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.reference.codecs.grids import Grid, GridFamily, SpacedGrid
from guarded_moments.reference.guard import in_domain

#: Accepts (m, v, m_hat, v_hat), float32 tensors of one shape, and says where the guard would accept.
Guard = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

#: Quantiles of the positions that are tried as the ends of a grid.
_LOW = (0.0, 0.0003, 0.001, 0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1)
_HIGH = (1.0, 0.9999, 0.9997, 0.999, 0.997, 0.99, 0.97)
_FIRST = (2, 1, 2, 1)
#: Coordinates that are looked at for quantiles, in all and of one run.
_QUANTILE_SAMPLE = 1 << 13
_RUN_SAMPLE = 1 << 8
#: Coordinates that a choice is judged by.
_COST_SAMPLE = 1 << 11
_ROUNDS = 3


@dataclass(frozen=True)
class _Sample:
    """Coordinates of each run, and which of them a logarithm exists of."""

    m: Tensor  #: float32, (runs, columns)
    v: Tensor
    usable: Tensor  #: bool

    @classmethod
    def of(cls, m: Tensor, v: Tensor, size: int | None) -> _Sample:
        if not m.numel():
            m, v = torch.zeros(1), torch.zeros(1)
        if size is None:
            stride = max(1, -(-m.numel() // _QUANTILE_SAMPLE))
            m, v = m[::stride].unsqueeze(0), v[::stride].unsqueeze(0)
        else:
            padding = -m.numel() % size
            stride = -(-size // _RUN_SAMPLE)
            m, v = (torch.nn.functional.pad(x, (0, padding)).view(-1, size)[:, ::stride] for x in (m, v))
        return cls(m.contiguous(), v.contiguous(), (m != 0) & (v > 0) & in_domain(m, v))


class _Moment:
    """Candidate grids for one moment, and where the sampled coordinates are on its scale."""

    def __init__(self, kind: type[SpacedGrid], levels: int, magnitude: Tensor, usable: Tensor, judged: Tensor) -> None:
        """Of all runs; `judged` are the indices, in the flattened sample, of the coordinates that decide."""
        self.kind, self.levels = kind, levels
        one = torch.ones(())
        position = kind.position(torch.where(usable, magnitude, one))
        ordered = torch.where(usable, position, torch.inf).sort(dim=1).values
        count = usable.sum(dim=1, keepdim=True)
        ends = []
        for quantiles in (_LOW, _HIGH):
            at = torch.tensor(quantiles, dtype=torch.float64) * (count - 1).clamp(min=0)
            end = ordered.gather(1, at.round().long())
            ends.append(torch.where(count > 0, end, 0.0))  # a run of zeros needs no grid
        self._low, self._high = ends
        self._position = position.flatten()[judged] * kind.units
        self._run = judged // magnitude.shape[1]

    def grids(self, low: int, high: int) -> tuple[Tensor, Tensor]:
        """Origins and pitches, (runs,), of one choice of quantiles."""
        return self.kind.fitted(self._low[:, low], self._high[:, high], self.levels)

    def decoded(self, low: int, high: int) -> Tensor:
        """What the judged magnitudes would be decoded to, (coordinates,)."""
        origin, pitch = (x[self._run] for x in self.grids(low, high))
        index = ((self._position - origin) / pitch).round().clamp(0, self.levels - 1).long()
        return self.kind.level_of(index, origin, pitch)


def choose_grids(
    kind: type[SpacedGrid], m: Tensor, v: Tensor, m_levels: int, v_levels: int, guard: Guard, size: int | None = None
) -> tuple[Grid, Grid]:
    """Grids for one tensor's moments; deterministic.

    Args:
        kind: the scale.
        m: first moments, float32, shape (n,), any values.
        v: second moments, float32, shape (n,), any values.
        m_levels: levels of the first moment's grid.
        v_levels: levels of the second moment's grid.
        guard: judges the sample.
        size: coordinates, in order, that share grids; None for one grid a moment.
    """
    sample = _Sample.of(m, v, size)
    if size is None and 4 * int(sample.usable.sum()) < sample.usable.numel() < m.numel():
        there = (m != 0) & (v > 0)  # most are zero: look at the others
        sample = _Sample.of(m[there], v[there], None)
    judged = sample.usable.flatten().nonzero().flatten()
    judged = judged[:: max(1, -(-len(judged) // _COST_SAMPLE))]
    first = _Moment(kind, m_levels, sample.m.abs(), sample.usable, judged)
    second = _Moment(kind, v_levels, sample.v, sample.usable, judged)
    choice = _descend(first, second, sample.m.flatten()[judged], sample.v.flatten()[judged], guard)
    grids = (first.grids(*choice[:2]), second.grids(*choice[2:]))
    if size is None:
        m_grid, v_grid = (
            kind.of_units(int(origin), int(pitch), levels)
            for (origin, pitch), levels in zip(grids, (m_levels, v_levels), strict=True)
        )
        return m_grid, v_grid
    m_family, v_family = (
        GridFamily(kind, origin, pitch, levels, size)
        for (origin, pitch), levels in zip(grids, (m_levels, v_levels), strict=True)
    )
    return m_family, v_family


def _descend(first: _Moment, second: _Moment, m: Tensor, v: Tensor, guard: Guard) -> tuple[int, int, int, int]:
    """The choice of quantiles: low and high of the first moment, low and high of the second."""
    sign = torch.where(m < 0, -1.0, 1.0)

    def costs(trials: list[tuple[int, int, int, int]]) -> list[int]:
        m_hat = torch.cat([first.decoded(*trial[:2]) * sign for trial in trials])
        v_hat = torch.cat([second.decoded(*trial[2:]) for trial in trials])
        accepted = guard(m.repeat(len(trials)), v.repeat(len(trials)), m_hat, v_hat)
        rejected: list[int] = (~accepted).view(len(trials), -1).sum(dim=1).tolist()
        return rejected

    choice, cost = _FIRST, len(m) + 1
    if not len(m):
        return choice
    for _ in range(_ROUNDS):
        before = cost
        for axis in (2, 3, 0, 1):  # the second moment first: it decides more
            candidates = range(len(_HIGH if axis % 2 else _LOW))
            trials = [(*choice[:axis], candidate, *choice[axis + 1 :]) for candidate in candidates]
            found = costs(trials)  # type: ignore[arg-type]  # four numbers each
            if min(found) < cost:
                cost = min(found)
                choice = trials[found.index(cost)]  # type: ignore[assignment]  # as above
        if cost in {before, 0}:
            break
    return choice
