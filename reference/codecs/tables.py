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


#: Relative error allowed to a value's binary64 approximation; wider than it is, so that few need a second look.
_DOUBT = 2.0**-50
#: Bits that keep the error of a few hundred successive products far below that.
_PRODUCT_PRECISION = 96


@lru_cache(maxsize=4096)
def levels(grid: LogGrid) -> Tensor:
    """The decoded magnitudes: float32 of shape (grid.levels,), strictly increasing, do not write to it."""
    return _table(grid, 0, up=False)


@lru_cache(maxsize=4096)
def thresholds(grid: LogGrid) -> Tensor:
    """Where the nearest level (in the logarithm, ties to the larger) changes: float32 of shape (grid.levels - 1,)."""
    return _table(grid, 1, up=True)


def _table(grid: LogGrid, first: int, *, up: bool) -> Tensor:
    """`2**(low + i*step/2)` for `i = first, first + 2, ...` below the last level, each rounded to binary32."""
    halves = range(first, 2 * grid.levels - 1, 2)
    with mpmath.workprec(_PRODUCT_PRECISION):
        value, ratio = mpf(2) ** mpf(grid.exponent(first / 2)), mpf(2) ** mpf(grid.step)
        approximations = []
        for _ in halves:
            approximations.append(float(value))
            value *= ratio
    middle = torch.tensor(approximations, dtype=torch.float64)
    below, above = _to_binary32(middle * (1 - _DOUBT), up=up), _to_binary32(middle * (1 + _DOUBT), up=up)
    for position in (below != above).nonzero().flatten().tolist():
        below[position] = _power(grid.exponent(halves[position] / 2), up=up)
    return below


def _to_binary32(values: Tensor, *, up: bool) -> Tensor:
    nearest = values.float()
    if not up:
        return nearest
    return torch.where(
        nearest.double() < values, torch.nextafter(nearest, torch.full_like(nearest, torch.inf)), nearest
    )


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
