"""The choice of `ratio8`'s parameters from the data: the second moment's range, and the step of the ratio.

Both ends of the second moment's grid are quantiles of the data, as in `ranges`; the reach of the ratio `|m|/sqrt(v)` is
one of its upper quantiles, or that shrunk by up to an octave, since a finer step for all may be worth clamping some.
The same descent as for two grids finds which, by the number of sampled coordinates that the guard rejects.

Claimed: nothing but that the result is valid, and the same for the same data.  Whatever it is, the guard decides with
the decoded values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.codecs.descent import HIGH, LOW, Choice, make_search
from guarded_moments.reference.codecs.grids import GridFamily, LogGrid
from guarded_moments.reference.codecs.multiples import steps_up
from guarded_moments.reference.codecs.ranges import FIRST, Guard, Moment, Sample, quantiles_of

LARGEST_MULTIPLE = 127
#: A choice's first entry shrinks the reach by so many of these steps, an octave in all.
_SHRINK = 2.0 ** (-1 / (len(LOW) - 1))
#: Ratios that are reached at least and at most: what they make of steps is inside the format, with room.
_LEAST_REACH, _MOST_REACH = 2.0**-54, 2.0**60


class _Trials(NamedTuple):
    """What a choice is judged by."""

    reaches: Tensor  #: float64, (runs, quantiles)
    second: Moment
    run: Tensor  #: of each judged coordinate
    states: tuple[Tensor, Tensor]
    guard: Guard


def choose_ratio(
    m: Tensor, v: Tensor, v_levels: int, guard: Guard, size: int | None = None
) -> tuple[LogGrid | GridFamily, Tensor]:
    """The second moment's grid, and the steps of the ratio; deterministic.

    Args:
        m: first moments, float32, shape (n,), any values.
        v: second moments, float32, shape (n,), any values.
        v_levels: levels of the second moment's grid.
        guard: judges the sample.
        size: coordinates, in order, that share a grid and a step; None for one of the tensor.
    """
    sample = Sample.of(m, v, size)
    ratios = sample.m.double().abs() / torch.where(sample.usable, sample.v, 1.0).double().sqrt()
    (reaches,) = quantiles_of(ratios, sample.usable, HIGH)
    second = Moment(LogGrid, v_levels, sample.v, sample.usable, sample.judged)
    trials = _Trials(reaches, second, sample.judged // sample.m.shape[1], sample.states(), guard)
    choice: Choice = (0, *FIRST[1:])
    if len(sample.judged):
        choice = _search(trials, choice)
    steps = _steps(reaches, choice)
    origins, pitches = second.grid(*choice[2:])
    if size is None:
        return LogGrid.of_units(int(origins), int(pitches), v_levels), steps
    return GridFamily(LogGrid, origins.flatten(), pitches.flatten(), v_levels, size), steps


def _steps(reaches: Tensor, choice: Choice) -> Tensor:
    """Of each run."""
    return steps_reaching(reaches[:, choice[1]] * _SHRINK ** choice[0])


def steps_reaching(reaches: Tensor) -> Tensor:
    """Steps whose largest multiple is about such a ratio or a little more: float32, values of bfloat16."""
    return steps_up(reaches.clamp(_LEAST_REACH, _MOST_REACH) / LARGEST_MULTIPLE)


def _rejected(trials: _Trials, choice: Choice, step: int, enough: int) -> int:  # noqa: ARG001 - counts them all at once
    m, v = (x[::step] for x in trials.states)
    v_hat = trials.second.decoded(*choice[2:], step)
    unit = _steps(trials.reaches, choice)[trials.run[::step]] * v_hat.sqrt()  # for a choice, the root is good enough
    m_hat = (m / unit).round_().clamp_(max=LARGEST_MULTIPLE) * unit
    return int((~trials.guard(m, v, m_hat, v_hat)).sum())


_search: Callable[[_Trials, Choice], Choice] = make_search(_rejected)
