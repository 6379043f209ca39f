"""The choice of grids from the data: from where to where each moment's levels reach.

The range is the largest lever on the bit rate.  Both ends of both moments' grids are taken from quantiles of the data,
and which quantiles is found by descending over one end after the other, on a sample of the tensor, each time trying all
candidates at once; the cost is the number of coordinates that the guard rejects.  Where runs of coordinates have grids
of their own, each run has its own quantiles, and all runs of a tensor the same choice among them.

Claimed: nothing but that the result is grids, and the same for the same data.  Whatever they are, the guard decides
with the decoded values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.codecs.descent import HIGH, LOW, Choice, make_search
from guarded_moments.reference.codecs.grids import Grid, GridFamily, SpacedGrid
from guarded_moments.reference.guard import in_domain

#: Accepts (m, v, m_hat, v_hat), float32 tensors of one shape, and says where the guard would accept.
Guard = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Candidates(NamedTuple):
    """One moment's sampled coordinates, and every grid that there is to choose from, low end by high end."""

    position: np.ndarray[tuple[int], np.dtype[np.float64]]  #: on the grids' scale, (n,)
    origins: np.ndarray[tuple[int], np.dtype[np.int64]]  #: (choices,)
    pitches: np.ndarray[tuple[int], np.dtype[np.int64]]  #: (choices,)
    levels: np.ndarray[tuple[int, int], np.dtype[np.float32]]  #: (choices, levels)


@runtime_checkable
class CompiledSearch(Protocol):
    """A guard that searches in compiled code."""

    def __call__(self, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """As a `Guard`."""
        ...

    def choose(self, states: tuple[Tensor, Tensor], moments: tuple[Candidates, Candidates], first: Choice) -> Choice:
        """The choice that the same search finds with this guard."""
        ...


#: Coordinates that are looked at for quantiles, in all and of one run.
_QUANTILE_SAMPLE = 1 << 13
_RUN_SAMPLE = 1 << 8
#: Coordinates that a choice is judged by.
_COST_SAMPLE = 1 << 12
FIRST: Choice = (2, 1, 2, 1)
#: A magnitude that is in every grid's reach, for a run that has none.
_OF_NONE = 1.0


@dataclass(frozen=True)
class Sample:
    """Coordinates of each run, which of them a logarithm exists of, and which of these decide."""

    m: Tensor  #: float32, (runs, columns)
    v: Tensor
    usable: Tensor  #: bool
    judged: Tensor  #: int64: indices, in the flattened sample

    @classmethod
    def of(cls, m: Tensor, v: Tensor, size: int | None) -> Sample:
        """Of a tensor's moments, float32, (n,); `size` as in `choose_grids`."""
        sample = cls._taken(m, v, size)
        if size is None and 4 * int(sample.usable.sum()) < sample.usable.numel() < m.numel():
            there = (m != 0) & (v > 0)  # most are zero: look at the others
            sample = cls._taken(m[there], v[there], None)
        return sample

    @classmethod
    def _taken(cls, m: Tensor, v: Tensor, size: int | None) -> Sample:
        if not m.numel():
            m, v = torch.zeros(1), torch.zeros(1)
        if size is None:
            stride = max(1, -(-m.numel() // _QUANTILE_SAMPLE))
            m, v = m[::stride].unsqueeze(0), v[::stride].unsqueeze(0)
        else:
            padding = -m.numel() % size
            stride = -(-size // _RUN_SAMPLE)
            m, v = (torch.nn.functional.pad(x, (0, padding)).view(-1, size)[:, ::stride] for x in (m, v))
        usable = (m != 0) & (v > 0) & in_domain(m, v)
        judged = usable.flatten().nonzero().flatten()
        return cls(m.contiguous(), v.contiguous(), usable, judged[:: max(1, -(-len(judged) // _COST_SAMPLE))])

    def states(self) -> tuple[Tensor, Tensor]:
        """What decides.  First moments as magnitudes: no guard looks at a sign but to compare it."""
        return self.m.flatten()[self.judged].abs(), self.v.flatten()[self.judged]


def quantiles_of(values: Tensor, usable: Tensor, *quantiles: Sequence[float]) -> list[Tensor]:
    """Quantiles of what is usable in each run, (runs, quantiles), for each list of them; 0 of an empty run."""
    # NumPy's sort is vectorised where the processor allows it.
    ordered = torch.from_numpy(np.sort(torch.where(usable, values, torch.inf).numpy(), axis=1))
    count = usable.sum(dim=1, keepdim=True)
    found = []
    for of in quantiles:
        at = torch.tensor(of, dtype=torch.float64) * (count - 1).clamp(min=0)
        found.append(torch.where(count > 0, ordered.gather(1, at.round().long()), 0.0))  # a run of zeros needs no grid
    return found


class Moment:
    """Candidate grids for one moment, and where the sampled coordinates are on its scale."""

    def __init__(self, kind: type[SpacedGrid], levels: int, magnitude: Tensor, usable: Tensor, judged: Tensor) -> None:
        """Of all runs; `judged` are the indices, in the flattened sample, of the coordinates that decide."""
        self.kind, self.levels = kind, levels
        ends = quantiles_of(magnitude, usable, LOW, HIGH)
        self._low, self._high = (kind.position(torch.where(end > 0, end, _OF_NONE)) for end in ends)
        self._position = kind.position(magnitude.flatten()[judged]) * kind.units
        self._run = judged // magnitude.shape[1]

    def grid(self, low: int, high: int) -> tuple[Tensor, Tensor]:
        """Origins and pitches, (runs,), of a choice of quantiles."""
        return self.kind.fitted(self._low[:, low], self._high[:, high], self.levels)

    def decoded(self, low: int, high: int, step: int) -> Tensor:
        """What every `step`th of the judged magnitudes would be decoded to at a choice."""
        origin, pitch = (x[self._run[::step]] for x in self.grid(low, high))
        index = ((self._position[::step] - origin) / pitch).round_().clamp_(0, self.levels - 1).long()
        return self.kind.level_of(index, origin, pitch)

    def candidates(self) -> Candidates:
        """All choices where there is one run, for compiled code."""
        low, high = torch.cartesian_prod(self._low[0], self._high[0]).T
        origin, pitch = self.kind.fitted(low, high, self.levels)
        levels = self.kind.magnitude(origin.unsqueeze(1) + torch.arange(self.levels) * pitch.unsqueeze(1))
        arrays = (self._position, origin, pitch, levels)
        return Candidates(*(x.numpy() for x in arrays))


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
    sample = Sample.of(m, v, size)
    judged = sample.judged
    first = Moment(kind, m_levels, sample.m.abs(), sample.usable, judged)
    second = Moment(kind, v_levels, sample.v, sample.usable, judged)
    states = sample.states()
    choice = FIRST
    if len(judged):
        if isinstance(guard, CompiledSearch) and size is None:
            choice = guard.choose(states, (first.candidates(), second.candidates()), choice)
        else:
            choice = _search(_Trials(first, second, states, guard), choice)
    (m_origins, m_pitches), (v_origins, v_pitches) = first.grid(*choice[:2]), second.grid(*choice[2:])
    if size is None:
        return (
            kind.of_units(int(m_origins), int(m_pitches), m_levels),
            kind.of_units(int(v_origins), int(v_pitches), v_levels),
        )
    return (
        GridFamily(kind, m_origins.flatten(), m_pitches.flatten(), m_levels, size),
        GridFamily(kind, v_origins.flatten(), v_pitches.flatten(), v_levels, size),
    )


class _Trials(NamedTuple):
    """What a choice is judged by, in torch."""

    first: Moment
    second: Moment
    states: tuple[Tensor, Tensor]
    guard: Guard


def _rejected(trials: _Trials, choice: Choice, step: int, enough: int) -> int:  # noqa: ARG001 - counts them all at once
    m, v = (x[::step] for x in trials.states)
    hats = trials.first.decoded(*choice[:2], step), trials.second.decoded(*choice[2:], step)
    return int((~trials.guard(m, v, *hats)).sum())


_search: Callable[[_Trials, Choice], Choice] = make_search(_rejected)
