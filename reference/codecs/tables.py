"""Powers of two as correctly rounded binary32: the levels of logarithmic grids and the thresholds between them.

Every grid's exponents are multiples of a fixed fraction of an octave, so one table of one octave holds all mantissas
there are; it is computed once, in integers.  Decoding is a look-up in it and an exact shift of the exponent, never a
library's `exp2`, so that every device and language agrees bit for bit.

Claimed: level `i` is `2**(low + i*step)` rounded to the nearest binary32; threshold `i` is the smallest binary32 that
is at least the geometric mean of levels `i` and `i+1`.  That no entry is too close to a rounding boundary to be told
apart is checked while the table is made.  Trusted: mpmath's powers to 2**-100, for 768 exponents.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from guarded_moments.reference.codecs.grids import LogGrid

#: A level's exponent is a multiple of 2**-16 octaves; that of a threshold, half-way between two, of 2**-17.
LEVEL_BITS = 16
THRESHOLD_BITS = 17

_COARSE_BITS = 8  #: the octave is the products of two tables, of 2**8 and 2**9 entries
_FINE_BITS = THRESHOLD_BITS - _COARSE_BITS
_FACTOR_BITS = 100  #: after the binary point of a factor
_FRACTION_BITS = 23  #: of a binary32
_REST_BITS = 39  #: of a product below a binary32's last place, so that it fits 63 bits
_DOUBT = 4  #: in units of those: far more than the error of a product, which is below one
_BIAS = 127


class _Octave(NamedTuple):
    """`2**x` for x in [0, 1) as bits of a binary32, less those of 1.0; int64."""

    nearest: Tensor  #: (2**16,), `x` in steps of 2**-16
    up: Tensor  #: (2**17,), `x` in steps of 2**-17, rounded up


@lru_cache(maxsize=1)
def _octave() -> _Octave:
    coarse, fine = _powers(_COARSE_BITS, 1 << _COARSE_BITS), _powers(THRESHOLD_BITS, 1 << _FINE_BITS)
    scaled = np.multiply.outer(coarse, fine).reshape(-1) >> (2 * _FACTOR_BITS - _FRACTION_BITS - _REST_BITS)
    products = torch.from_numpy(scaled.astype(np.int64))
    rest = products & ((1 << _REST_BITS) - 1)
    half = 1 << (_REST_BITS - 1)
    exact = torch.arange(len(products)) == 0  # 2**0; no other power is rational
    near_half = (rest - half).abs() <= _DOUBT
    near_whole = ((rest <= _DOUBT) | (rest >= 2 * half - _DOUBT)) & ~exact
    if bool((near_half | near_whole).any()):
        raise ArithmeticError("a power of two is too close to a rounding boundary of binary32 for this precision")
    below = (products >> _REST_BITS) - (1 << _FRACTION_BITS)
    nearest, up = below + (rest > half), torch.where(exact, below, below + 1)
    return _Octave(nearest[::2].contiguous(), up)


def _powers(bits: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """`2**(k * 2**-bits)` for `k` in `range(count)`, rounded down to a multiple of `2**-_FACTOR_BITS`, as integers."""
    import mpmath  # noqa: PLC0415 - a third of what importing the package took

    with mpmath.workprec(_FACTOR_BITS + 20):
        return np.array(
            [
                int(mpmath.floor(mpmath.ldexp(mpmath.mpf(2) ** mpmath.ldexp(k, -bits), _FACTOR_BITS)))
                for k in range(count)
            ],
            dtype=object,
        )


def level_at(exponent: Tensor) -> Tensor:
    """`2**(exponent * 2**-16)` rounded to the nearest binary32.

    Args:
        exponent: int64, any shape; from -126 octaves to below 128.
    """
    mantissa = _octave().nearest[exponent & ((1 << LEVEL_BITS) - 1)]
    return _assembled(exponent >> LEVEL_BITS, mantissa)


def threshold_at(exponent: Tensor) -> Tensor:
    """The smallest binary32 that is at least `2**(exponent * 2**-17)`; arguments as `level_at`."""
    mantissa = _octave().up[exponent & ((1 << THRESHOLD_BITS) - 1)]
    return _assembled(exponent >> THRESHOLD_BITS, mantissa)


def _assembled(octave: Tensor, mantissa: Tensor) -> Tensor:
    # A mantissa that rounded up to 2.0 carries into the exponent by itself.
    return (((octave + _BIAS) << _FRACTION_BITS) + mantissa).to(torch.int32).view(torch.float32)


@lru_cache(maxsize=4096)
def levels(grid: LogGrid) -> Tensor:
    """The decoded magnitudes: float32 of shape (grid.levels,), strictly increasing, do not write to it."""
    return level_at(grid.origin + torch.arange(grid.levels) * grid.pitch)


@lru_cache(maxsize=4096)
def thresholds(grid: LogGrid) -> Tensor:
    """Where the nearest level (in the logarithm, ties to the larger) changes: float32 of shape (grid.levels - 1,)."""
    return threshold_at(2 * grid.origin + (2 * torch.arange(grid.levels - 1) + 1) * grid.pitch)
