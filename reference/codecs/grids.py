"""Logarithmic grids: their parameters, and the choice of a range per tensor from the data.

The range is the largest lever on the bit rate.  The search here is a heuristic and nothing rests on it: whatever grid
it returns, the guard decides with the decoded values from the stored parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.reference.errors import FormatError

#: Grid parameters are multiples of this many octaves, so that they are short and exact in any notation.
_RESOLUTION = 2.0**-16
#: Levels are normal binary32 values; a narrower step than this could make two of them equal.
_LOWEST, _HIGHEST, _SMALLEST_STEP = -126.0, 127.5, 2.0**-14

#: Quantiles of the logarithms that are tried as the ends of a grid.
_LOW_QUANTILES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1)
_HIGH_QUANTILES = (1.0, 0.9999, 0.999, 0.997, 0.99, 0.97)
_SAMPLE = 2048
_ROUNDS = 3

#: Accepts (m, v, m_hat, v_hat), float32 tensors of one shape, and says where the guard would accept.
Guard = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LogGrid:
    """The magnitudes `2**(low + i*step)` for `i` in `range(levels)`; exponents in octaves."""

    low: float
    step: float
    levels: int

    def __post_init__(self) -> None:
        """Reject a grid whose levels would not be distinct normal binary32 values."""
        in_range = self.low >= _LOWEST and self.step >= _SMALLEST_STEP and self.exponent(self.levels - 1) <= _HIGHEST
        if not (in_range and self.low == _quantize(self.low) and self.step == _quantize(self.step)):
            msg = f"grid {self} does not give distinct normal binary32 levels"
            raise FormatError(msg)

    def exponent(self, index: float) -> float:
        """The base-2 logarithm of level `index`; exact, for half-integer `index` too."""
        return self.low + index * self.step

    @classmethod
    def spanning(cls, low: float, high: float, levels: int) -> LogGrid:
        """The grid that reaches from about `2**low` to about `2**high`, moved inside the format where needed."""
        low = _quantize(min(max(low, _LOWEST), _HIGHEST - 1.0))
        step = max(_quantize((min(high, _HIGHEST) - low) / (levels - 1)), _SMALLEST_STEP)
        while low + (levels - 1) * step > _HIGHEST:
            step -= _RESOLUTION
        return cls(low, step, levels)


def _quantize(octaves: float) -> float:
    return math.floor(octaves / _RESOLUTION) * _RESOLUTION


def choose_grids(m: Tensor, v: Tensor, m_levels: int, v_levels: int, guard: Guard) -> tuple[LogGrid, LogGrid]:
    """Ranges for one tensor's moments, by coordinate descent over quantiles on a sample; deterministic.

    Args:
        m: first moments, float32, shape (n,).
        v: second moments, float32, shape (n,).
        m_levels: levels of the first moment's grid.
        v_levels: levels of the second moment's grid.
        guard: judges the sample.
    """
    usable = (m != 0) & (v > 0) & m.isfinite() & v.isfinite()
    m, v = m[usable], v[usable]
    if m.numel() == 0:
        return LogGrid.spanning(-64.0, 0.0, m_levels), LogGrid.spanning(-64.0, 0.0, v_levels)
    stride = -(-m.numel() // _SAMPLE)
    m, v = m[::stride].contiguous(), v[::stride].contiguous()
    log_m, log_v = m.abs().double().log2(), v.double().log2()
    ends = [
        torch.quantile(logarithms, torch.tensor(quantiles, dtype=torch.float64)).tolist()
        for logarithms, quantiles in (
            (log_m, _LOW_QUANTILES),
            (log_m, _HIGH_QUANTILES),
            (log_v, _LOW_QUANTILES),
            (log_v, _HIGH_QUANTILES),
        )
    ]
    sign = torch.where(m < 0, -1.0, 1.0)

    def grids(choice: Sequence[int]) -> tuple[LogGrid, LogGrid]:
        m_low, m_high, v_low, v_high = (end[i] for end, i in zip(ends, choice, strict=True))
        return LogGrid.spanning(m_low, m_high, m_levels), LogGrid.spanning(v_low, v_high, v_levels)

    def rejected(choice: Sequence[int]) -> int:
        m_grid, v_grid = grids(choice)
        m_hat = _approximate(log_m, m_grid) * sign
        return int((~guard(m, v, m_hat, _approximate(log_v, v_grid))).sum())

    choice: tuple[int, ...] = (0, 0, 0, 0)
    cost = rejected(choice)
    for _ in range(_ROUNDS):
        before = cost
        for axis in (2, 3, 0, 1):  # the second moment first: it decides more
            for candidate in range(len(ends[axis])):
                trial = (*choice[:axis], candidate, *choice[axis + 1 :])
                trial_cost = rejected(trial) if trial != choice else cost
                if trial_cost < cost:
                    choice, cost = trial, trial_cost
        if cost == before:
            break
    return grids(choice)


def _approximate(logarithms: Tensor, grid: LogGrid) -> Tensor:
    """About what decoding the nearest code would give: good enough to compare grids, never to decode."""
    index = ((logarithms - grid.low) / grid.step).round().clamp(0, grid.levels - 1)
    return torch.exp2(grid.low + index * grid.step).float()
