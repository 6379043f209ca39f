"""Decode and threshold tables of a logarithmic grid: correctly rounded binary32, computed once with mpmath.

Decoding is a table look-up, never a library's `exp2`, so that every device and language agrees bit for bit.

Claimed: level `i` is `2**(low + i*step)` rounded to the nearest binary32; threshold `i` is the smallest binary32 that
is at least the geometric mean of levels `i` and `i+1`.  Trusted: mpmath's power at the stated precision; rounding is
settled by raising the precision until it is unambiguous (Ziv's strategy).
"""

from __future__ import annotations

from functools import lru_cache

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from guarded_moments.reference.codecs.grids import LogGrid
from guarded_moments.reference.floats import BINARY32

_FIRST_PRECISION = 64
_LAST_PRECISION = 4096


@lru_cache(maxsize=4096)
def levels(grid: LogGrid) -> Tensor:
    """The decoded magnitudes: float32 of shape (grid.levels,), strictly increasing, do not write to it."""
    return torch.tensor([_power(grid.exponent(i), up=False) for i in range(grid.levels)], dtype=torch.float32)


@lru_cache(maxsize=4096)
def thresholds(grid: LogGrid) -> Tensor:
    """Where the nearest level (in the logarithm, ties to the larger) changes: float32 of shape (grid.levels - 1,)."""
    middles = [_power(grid.exponent(i + 0.5), up=True) for i in range(grid.levels - 1)]
    return torch.tensor(middles, dtype=torch.float32)


def _power(exponent: float, *, up: bool) -> float:
    """`2**exponent` rounded to binary32, to nearest or up; the result is normal."""
    precision = _FIRST_PRECISION
    while precision <= _LAST_PRECISION:
        with mpmath.workprec(precision):
            value = mpf(2) ** mpf(exponent)
            margin = abs(value) * mpf(2) ** (8 - precision)
            below, above = (_round(value - margin, up=up), _round(value + margin, up=up))
            exact = exponent == int(exponent)  # a power of two is computed exactly
        if exact:
            return float(value)
        if below == above:
            return below
        precision *= 2
    msg = f"2**{exponent!r} could not be rounded with {_LAST_PRECISION} bits"
    raise ArithmeticError(msg)


def _round(value: mpf, *, up: bool) -> float:
    with mpmath.workprec(BINARY32.precision):
        return float(mpmath.fadd(value, 0, rounding="c" if up else "n"))
