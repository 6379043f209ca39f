"""The kernels of the codecs in Triton: nearest codes and levels of a block, and what is made of them.

A moment's grid is one array of int32: the loops' own numbers, then tables.  Functions that a kernel calls are given to
it as constants, so that one source serves the compiler and the interpreter.

Claimed: the codes and levels of `loops`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.triton_operations import jit
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT
from guarded_moments.reference.kernels.loops import Halves, OnBits, OnTable

_NUMBERS = 4  #: of a logarithmic grid: shift, first cell, last cell, where the thresholds begin
_DECODED = tl.constexpr(_NUMBERS)
_BELOW = tl.constexpr(_NUMBERS + 256)
_LARGEST_MOMENT_BITS = tl.constexpr(bits_of(LARGEST_MOMENT))
_LARGEST_SECOND_MOMENT_BITS = tl.constexpr(bits_of(LARGEST_SECOND_MOMENT))
_WITHOUT_SIGN = tl.constexpr(0x7FFF_FFFF)
_MINUS_ZERO = tl.constexpr(-(1 << 31))


def grid_array(parameters: Any) -> Tensor:  # noqa: ANN401 - of `loops.parameters_of`
    """One moment's grid as the kernels take it: int32."""
    if isinstance(parameters, OnTable):
        below = parameters.below.astype(np.int32)
        numbers = [parameters.shift, parameters.first, parameters.last, _NUMBERS + 256 + len(below)]
        parts = (np.array(numbers, dtype=np.int32), parameters.decoded.view(np.int32), below)
        return torch.from_numpy(np.concatenate([*parts, parameters.thresholds.view(np.int32)]))
    if isinstance(parameters, OnBits):
        base, step, half, farthest = parameters.base, parameters.step, parameters.half, parameters.farthest
        return torch.tensor([int(base), int(step), int(half), int(farthest)], dtype=torch.int32)
    return torch.zeros(1, dtype=torch.int32)


class Loops(NamedTuple):
    """Functions of a block of one moment's bits, int32, or codes, int32; `mask` is of a code's magnitude."""

    nearest: Callable[..., Any]  #: `(grid_ptr, bits, mask) -> codes`
    level: Callable[..., Any]  #: `(grid_ptr, codes, mask) -> bits`


def _nearest_on_table(grid_ptr, bits, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by Triton, as all below
    magnitude = bits & _WITHOUT_SIGN
    first = tl.load(grid_ptr + 1)
    cell = tl.minimum(tl.maximum(magnitude >> tl.load(grid_ptr), first), tl.load(grid_ptr + 2)) - first
    index = tl.load(grid_ptr + _BELOW + cell)
    index += (magnitude >= tl.load(grid_ptr + tl.load(grid_ptr + 3) + index)).to(tl.int32)
    return tl.where(magnitude != 0, (index + 1) | ((bits >> 24) & (0xFF - mask)), 0)


def _level_on_table(grid_ptr, codes, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    return tl.load(grid_ptr + _DECODED + codes)


def _nearest_on_bits(grid_ptr, bits, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    magnitude = bits & _WITHOUT_SIGN
    distance = (magnitude - tl.load(grid_ptr)) + tl.load(grid_ptr + 2)
    index = tl.minimum(tl.maximum(distance, 0), tl.load(grid_ptr + 3)) // tl.load(grid_ptr + 1)
    return tl.where(magnitude != 0, (index + 1) | ((bits >> 24) & (0xFF - mask)), 0)


def _level_on_bits(grid_ptr, codes, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    magnitude = codes & mask
    level = tl.load(grid_ptr) + (magnitude - 1) * tl.load(grid_ptr + 1)
    return tl.where(magnitude != 0, level | ((codes & (0xFF - mask)) << 24), 0)


def _nearest_half(grid_ptr, bits, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def _widened_half(grid_ptr, codes, mask):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    return codes << 16


_FUNCTIONS = {
    OnTable: (_nearest_on_table, _level_on_table),
    OnBits: (_nearest_on_bits, _level_on_bits),
    Halves: (_nearest_half, _widened_half),
}


@cache
def loops_for(kind: type, *, interpreted: bool) -> Loops:
    """The functions for grids of a kind: `OnTable`, `OnBits` or `Halves`.

    Raises:
        UnsupportedError: there are none.
    """
    if kind not in _FUNCTIONS:
        raise UnsupportedError(f"{kind.__name__} has no kernels in Triton")
    make: Jit = as_is if interpreted else jit
    return Loops(*(make(function) for function in _FUNCTIONS[kind]))


def _in_domain(m_bits, v_bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    inside = ((m_bits & _WITHOUT_SIGN) <= _LARGEST_MOMENT_BITS) & (m_bits != _MINUS_ZERO)
    return inside & (v_bits >= 0) & (v_bits <= _LARGEST_SECOND_MOMENT_BITS)


@cache
def domain(*, interpreted: bool) -> Callable[..., Any]:
    """Where a state is one that the guard's theorem speaks about (see `in_domain`), from its bits."""
    make: Jit = as_is if interpreted else jit
    result: Callable[..., Any] = make(_in_domain)
    return result
