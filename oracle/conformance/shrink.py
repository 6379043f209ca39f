"""Counterexamples made simple: fewer significant bits, zeros for numbers that do not matter, plus signs.

Claimed: what `shrink` returns still fails, for it is only ever replaced by values that were seen to fail.  Not claimed:
that nothing simpler fails.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_SIGN = -0x80000000
_MAGNITUDE = 0x7FFFFFFF
_FRACTION = 0x7FFFFF
_FRACTION_BITS = 23
_EXPONENT_OF_ONE = 127


def complexity(values: Tensor) -> Tensor:
    """How hard each row of numbers is to read; float64.

    Significant bits count first, then minus signs, then the distance from one in octaves.

    Args:
        values: float32, shape (..., n).
    """
    bits = values.contiguous().view(torch.int32)
    fraction = bits & _FRACTION
    trailing = torch.zeros_like(fraction)
    for width in range(1, _FRACTION_BITS + 1):
        trailing += (fraction & ((1 << width) - 1)) == 0
    octaves = ((bits & _MAGNITUDE) >> _FRACTION_BITS) - _EXPONENT_OF_ONE
    zero = (bits & _MAGNITUDE) == 0
    of_value = (_FRACTION_BITS + 1 - trailing) + octaves.abs() / 1024
    return (torch.where(zero, 0.0, of_value.double()) + 0.5 * (bits < 0)).sum(dim=-1)


def simplest(values: Tensor) -> Tensor:
    """The row that is easiest to read, shape (n,), of rows of shape (k, n)."""
    return values[complexity(values).argmin()]


def shrink(values: Tensor, fails: Callable[[Tensor], Tensor]) -> Tensor:
    """Simplify a row of numbers for as long as it fails.

    Args:
        values: float32, shape (n,); fails.
        fails: takes rows of shape (k, n) and says which fail: bool, shape (k,).
    """
    while True:
        candidates = _candidates(values)
        candidates = candidates[complexity(candidates) < complexity(values)]
        failing = candidates[fails(candidates)]
        if len(failing) == 0:
            return values
        values = simplest(failing)


def _candidates(values: Tensor) -> Tensor:
    """Rows that differ from `values` in one number: rounded to fewer bits, zero, or positive."""
    bits = values.contiguous().view(torch.int32)
    sign, magnitude = bits & _SIGN, bits & _MAGNITUDE
    dropped = torch.arange(1, _FRACTION_BITS + 1, dtype=torch.int32).unsqueeze(1)
    down = (magnitude >> dropped) << dropped
    up = torch.where(down <= _MAGNITUDE - (1 << dropped), down + (1 << dropped), down)
    replacements = torch.cat([sign | down, sign | up, magnitude.unsqueeze(0), torch.zeros_like(bits).unsqueeze(0)])
    rows = bits.expand(len(bits), len(replacements), len(bits)).clone()
    position = torch.arange(len(bits))
    rows[position, :, position] = replacements.T
    return rows.reshape(-1, len(bits)).view(torch.float32)
