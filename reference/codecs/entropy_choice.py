"""The choice of `entropy`'s parameters from the data: the widest steps that the guard bears, and what rows say.

A step twice as wide saves a bit of every coordinate that is accepted, and an exact pair costs 64: so both steps are
found by descending over `64 * rejected - log2(both steps)`, on a sample of the tensor, with the guard itself.  Nothing
else is assumed of the tolerance, the horizon or the hyperparameters.  Then codes are centred where the numbers are, and
given as many low bits as leave the fewest bits in all, pairs outside and rows and columns counted.

Claimed: nothing but that the result is valid, and the same for the same data.  Whatever it is, the guard decides with
the decoded values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.codecs.grids import LogGrid
from guarded_moments.reference.codecs.multiples import SMALLEST_STEP, steps_up
from guarded_moments.reference.codecs.ranges import Guard, Sample
from guarded_moments.reference.guard import in_domain

#: Exponents of levels, and pitches, in units of 2**-16 octaves; all even, so that roots are on the same table.
LOWEST, HIGHEST = -126 * LogGrid.units, 127 * LogGrid.units + LogGrid.units // 2
#: No more is chosen: far above what any ratio is counted in.
LARGEST_STEP = 2.0**40
SMALLEST_PITCH, LARGEST_PITCH = 4, 4 * LogGrid.units
MOST_LOW_BITS = 8
PAIR_BITS = 64  #: what an exact pair costs
_LEADING = 256  #: values of the leading part of a code
_OFFSET_BITS = 8  #: of a row or a column
_LARGEST_OFFSET = 127
#: Steps that are tried first, both alike, by their logarithms; then both by ever smaller moves.
_FIRST_STEPS = range(-30, 8)
_MOVES = (1.0, 0.5, 0.25, 0.125, 0.0625)
_COARSE, _COARSE_ABOVE = 8, 0.2  #: every eighth coordinate shows the way while moves are larger
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1))
_STRETCH = 1 << 18  #: coordinates that are worked on at a time
_COUNTED = 1 << 16  #: coordinates by which low bits are chosen


class Choice(NamedTuple):
    """The parameters of `entropy`."""

    step: Tensor  #: float32, (1,), a bfloat16: what the first moment's code counts
    pitch: int  #: from one level to the next, even
    base: int  #: the number of the level that codes count from, but for rows and columns
    unit: int  #: levels to one of a row or a column
    low_bits: tuple[int, int]  #: of both codes
    rows: Tensor  #: int8; empty where rows and columns say nothing
    columns: Tensor  #: int8


def center(low_bits: int) -> int:
    """The code that stands for no difference."""
    return (_LEADING // 2) << low_bits


def choose(m: Tensor, v: Tensor, guard: Guard, row: int | None) -> Choice:
    """All parameters for one tensor; deterministic.

    Args:
        m: first moments, float32, shape (n,), any values.
        v: second moments, float32, shape (n,), any values.
        guard: judges the sample.
        row: coordinates of a row, in order; None where there are no rows.
    """
    step_exponent, pitch_exponent = _steps(Sample.of(m, v, None), guard)
    step = steps_up(torch.tensor([2.0**step_exponent], dtype=torch.float64).clamp(SMALLEST_STEP, LARGEST_STEP))
    pitch = min(max(round(2.0**pitch_exponent * LogGrid.units / 2) * 2, SMALLEST_PITCH), LARGEST_PITCH)
    numbers = _Numbers(m, v, float(step), pitch)
    m_window = _window(numbers.multiples(), centred=True)
    none = torch.empty(0, dtype=torch.int8)
    plain = _window(numbers.levels())
    best, found = plain.cost * len(v), (plain, 1, none, none)
    if row is not None and len(v) > row:
        unit, rows, columns = numbers.by_rows(row)
        window = _window(numbers.levels(unit, rows, columns))
        if window.cost * len(v) + _OFFSET_BITS * (len(rows) + len(columns)) < best:
            found = window, unit, rows, columns
    window, unit, rows, columns = found
    return Choice(step, pitch, window.middle, unit, (m_window.low_bits, window.low_bits), rows, columns)


def _steps(sample: Sample, guard: Guard) -> tuple[float, float]:
    """The logarithms of the best steps: of the ratio, and of the second moment in octaves."""
    moments = sample.states()
    octaves = moments[1].double().log2()

    def cost(step: float, pitch: float, every: int) -> float:
        m, v = (x[::every] for x in moments)
        v_hat = torch.exp2((octaves[::every] / 2.0**pitch).round() * 2.0**pitch)
        unit = 2.0**step * v_hat.sqrt()
        m_hat = ((m.double() / unit).round() * unit).float()
        rejected = int((~guard(m, v, m_hat, v_hat.float())).sum())
        return PAIR_BITS * rejected / len(m) - step - pitch

    if not len(octaves):
        return 0.0, 0.0
    step, pitch = min(((float(x), float(x)) for x in _FIRST_STEPS), key=lambda pair: cost(pair[0], pair[1], _COARSE))
    for move in _MOVES:
        every = _COARSE if move > _COARSE_ABOVE else 1
        best, better = cost(step, pitch, every), True
        while better:
            tried = ((step + move * x, pitch + move * y) for x, y in _DIRECTIONS)
            found = min((cost(*trial, every), *trial) for trial in tried)
            better = found[0] < best and max(found[1:]) <= _FIRST_STEPS[-1]
            if better:
                best, step, pitch = found
    return step, pitch


class _Counted(NamedTuple):
    """Numbers as far as they are counted."""

    sample: Tensor  #: int64
    low: int  #: of all of them
    high: int


class _Numbers:
    """A tensor's multiples and levels, as far as the guard speaks about them; good enough to count."""

    def __init__(self, m: Tensor, v: Tensor, step: float, pitch: int) -> None:
        self._m, self._v, self._step, self._pitch = m, v, step, pitch

    def _level(self, part: slice, row: int = 1) -> tuple[Tensor, Tensor]:
        """Numbers of levels, float64, and where there are any."""
        m, v = self._m[part], self._v[part]
        there = (v > 0) & in_domain(m, v)
        octaves = LogGrid.position(torch.where(there, v, 1.0)).clamp(LOWEST / LogGrid.units, HIGHEST / LogGrid.units)
        number = ((octaves * LogGrid.units - LOWEST) / self._pitch).round()
        return number.view(-1, row), there.view(-1, row)

    def _parts(self, row: int = 1) -> list[slice]:
        count = row * max(1, _STRETCH // row)
        return [slice(begin, begin + count) for begin in range(0, len(self._v), count)]

    def multiples(self) -> _Counted:
        """Those of all first moments."""
        found = []
        for part in self._parts():
            m, v = self._m[part], self._v[part]
            there = (v > 0) & in_domain(m, v)
            found.append(self._counted((m[there].double() / (self._step * v[there].double().sqrt())).round()))
        return _together(found)

    def _counted(self, numbers: Tensor) -> _Counted:
        if not len(numbers):
            return _Counted(torch.empty(0, dtype=torch.int64), 0, 0)
        sample = numbers[:: -(-len(self._v) // _COUNTED)].long()
        return _Counted(sample, int(numbers.min()), int(numbers.max()))

    def by_rows(self, row: int) -> tuple[int, Tensor, Tensor]:
        """The unit, and what each row and each column says beyond the mean of all."""
        means, sums, counts = [], torch.zeros(row, dtype=torch.float64), torch.zeros(row, dtype=torch.float64)
        for part in self._parts(row):
            number, there = self._level(part, row)
            mean = (number * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
            sums += ((number - mean.unsqueeze(1)) * there).sum(dim=0)
            counts += there.sum(dim=0)
            means.append(torch.where(there.any(dim=1), mean, torch.nan))
        rows, columns = torch.cat(means), sums / counts.clamp(min=1)
        rows = rows.nan_to_num(float(rows.nanmean().nan_to_num(0.0)))
        rows = rows - rows.mean().round()
        largest = float(torch.maximum(rows.abs().max(), columns.abs().max()))
        unit = max(1, -int(-largest // _LARGEST_OFFSET))
        rows, columns = ((x / unit).round().to(torch.int8) for x in (rows, columns))
        return unit, rows, columns

    def levels(self, unit: int = 1, rows: Tensor | None = None, columns: Tensor | None = None) -> _Counted:
        """Those of all second moments, less what rows and columns say."""
        row = 1 if columns is None else len(columns)
        found, done = [], 0
        for part in self._parts(row):
            number, there = self._level(part, row)
            if rows is not None and columns is not None:
                own = rows[done : done + len(number)].double().unsqueeze(1)
                number -= unit * (own + columns.double())
                done += len(number)
            found.append(self._counted(number[there]))
        return _together(found)


def _together(parts: Sequence[_Counted]) -> _Counted:
    there = [part for part in parts if len(part.sample)]
    if not there:
        return _Counted(torch.empty(0, dtype=torch.int64), 0, 0)
    sample = torch.cat([part.sample for part in there])
    return _Counted(sample, min(part.low for part in there), max(part.high for part in there))


class _Window(NamedTuple):
    """Where codes lie among numbers."""

    cost: float  #: bits a number
    low_bits: int
    middle: int  #: the number at the center


def _window(numbers: _Counted, *, centred: bool = False) -> _Window:
    """The cheapest; around zero where `centred`."""
    counted, low, high = numbers
    if not len(counted):
        return _Window(1.0, 0, 0)
    median = int(counted.median())
    best = _Window(float("inf"), 0, 0)
    for low_bits in range(MOST_LOW_BITS + 1):
        half = center(low_bits)
        middle = 0 if centred else (low + high) // 2 if high - low < 2 * half - 1 else median
        codes = counted - middle + half
        inside = (codes > 0) & (codes < 2 * half)
        share = (codes[inside] >> low_bits).bincount(minlength=_LEADING).double() / len(codes)
        entropy = float(torch.special.entr(share / share.sum().clamp(min=1e-300)).sum()) / math.log(2)
        outside = 1.0 - float(share.sum())
        cost = max(1.0, entropy) + low_bits + PAIR_BITS * outside
        best = min(best, _Window(cost, low_bits, middle))
    return best
