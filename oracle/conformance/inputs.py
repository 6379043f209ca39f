"""What backends are tried on: grids, ordinary states, and numbers that break things."""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Grids
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS

_SMALLEST_SUBNORMAL = 2.0**-149
_SMALLEST_NORMAL = 2.0**-126
_LARGEST = 2.0**128 - 2.0**104


def from_pattern(*patterns: int) -> Tensor:
    """The binary32 values with these bits."""
    signed = [pattern - (1 << 32) if pattern >> 31 else pattern for pattern in patterns]
    return torch.tensor(signed, dtype=torch.int32).view(torch.float32)


#: Quiet and signalling, of both signs, with payloads.
NANS = from_pattern(0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001, 0xFFBFFFFF, 0x7FFFFFFF)
INFINITIES = torch.tensor([torch.inf, -torch.inf])
#: Positive and finite, at the ends of the format's ranges.
POSITIVE = torch.tensor(
    [
        _SMALLEST_SUBNORMAL,
        _SMALLEST_NORMAL - _SMALLEST_SUBNORMAL,
        _SMALLEST_NORMAL,
        2.0**-64,
        1e-8,
        1.0,
        2.0**64,
        _LARGEST,
    ]
)
ZEROS = torch.tensor([0.0, -0.0])
#: Everything above, of both signs.
SPECIAL = torch.cat([ZEROS, POSITIVE, -POSITIVE, INFINITIES, NANS])

#: The usual; odd bounds; steps of whole and of half octaves, whose thresholds are powers of two; the least step; all.
GRIDS = (
    Grids(LogGrid.spanning(-64.0, 0.0, M_LEVELS), LogGrid.spanning(-64.0, 0.0, V_LEVELS)),
    Grids(LogGrid.spanning(-31.3, -4.21, M_LEVELS), LogGrid.spanning(-53.77, -9.1, V_LEVELS)),
    Grids(LogGrid(-126.0, 2.0, M_LEVELS), LogGrid(-63.75, 0.5, V_LEVELS)),
    Grids(LogGrid(-10.0, 2.0**-14, M_LEVELS), LogGrid(-20.0, 2.0**-14, V_LEVELS)),
    Grids(LogGrid.spanning(-126.0, 127.5, M_LEVELS), LogGrid.spanning(-126.0, 127.5, V_LEVELS)),
)


def grids_of(moment: str) -> tuple[tuple[Grids, LogGrid], ...]:
    """The grids to try, each with the one that belongs to `m` or `v`."""
    return tuple((grids, grids.m if moment == "m" else grids.v) for grids in GRIDS)


def uniform(generator: torch.Generator, count: int, low: float, high: float) -> Tensor:
    """Float64 of shape (count,), uniform in [low, high)."""
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)


def log_uniform(generator: torch.Generator, count: int, low: float, high: float) -> Tensor:
    """Float64 of shape (count,), its logarithm uniform between those of `low` and `high`."""
    return torch.exp2(uniform(generator, count, *torch.tensor([low, high], dtype=torch.float64).log2().tolist()))


def signs(generator: torch.Generator, count: int) -> Tensor:
    """Float64 of shape (count,), plus and minus one."""
    return 2.0 * torch.randint(2, (count,), generator=generator) - 1.0


def ordinary_states(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """States like those of training: `m` up to a few times `sqrt(v)`; float32 of shape (count,)."""
    v = log_uniform(generator, count, 1e-14, 1e-2)
    ratio = log_uniform(generator, count, 1e-3, 5.0) * signs(generator, count)
    return (ratio * v.sqrt()).float(), v.float()


def any_bits(generator: torch.Generator, count: int) -> Tensor:
    """Float32 of shape (count,): a third any 32 bits, a third special values, a third ordinary numbers."""
    bits = torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator).to(torch.int32).view(torch.float32)
    special = SPECIAL[torch.randint(len(SPECIAL), (count,), generator=generator)]
    ordinary = (log_uniform(generator, count, 1e-12, 1e3) * signs(generator, count)).float()
    kind = torch.randint(3, (count,), generator=generator)
    return torch.where(kind == 0, bits, torch.where(kind == 1, special, ordinary))


_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one floating-point dtype hold the same bits."""
    return a.view(_INTEGERS[a.dtype]) == b.view(_INTEGERS[b.dtype])


def same_numbers(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one dtype hold the same bits, or NaN both (payloads are no part of an op model)."""
    return same_bits(a, b) | (a.isnan() & b.isnan())
