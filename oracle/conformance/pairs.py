"""Pairs of a native and a recovered state on which a guard is tried: on its edge, near the tolerance, and as codecs do.

A recovered state is moved away from its native one along a line, in the first moment, the second or both, until the
guard under test rejects it: so the pairs that it accepts last are found whatever formula it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Grids
from guarded_moments.oracle.conformance.inputs import log_uniform, ordinary_states, signs, uniform
from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.guard.search import States

#: Halvings of the line, enough to end between neighbouring binary32 values on most lines.
_HALVINGS = 44
_LARGEST_M = 2.0**40
_LARGEST_V = 2.0**80
_SMALLEST_SUBNORMAL = 2.0**-149
_ZEROS = 0.1

#: Accepts (m, v, m_hat, v_hat), float32 tensors of shape (n,), and says where it accepts: bool (n,).
Guard = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def native_states(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Ordinary states and odd ones, `count` of each kind; float32."""
    m, v = ordinary_states(generator, count)
    sign = signs(generator, count)
    zero = torch.zeros(count)
    tiny_m = (sign * log_uniform(generator, count, 1e-44, 1e-20)).float()
    tiny_v = log_uniform(generator, count, 1e-44, 1e-16).float()  # eps dominates the denominator
    large_m = (sign * log_uniform(generator, count, 1.0, _LARGEST_M)).float()
    large_v = log_uniform(generator, count, 1.0, _LARGEST_V).float()
    far_m = (sign * 50.0 * v.double().sqrt()).float()  # a gradient that has just become small
    kinds = (
        (m, v),
        (zero, v),
        (m, zero),
        (far_m, v),
        (tiny_m, v),
        (m, tiny_v),
        (m, large_v),
        (large_m, large_v),
    )
    return torch.cat([kind[0] for kind in kinds]), torch.cat([kind[1] for kind in kinds])


def _directions(generator: torch.Generator, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Where each line ends, as differences in float64: one moment moved, or both."""
    count = len(m)
    size = torch.maximum(m.double().abs(), v.double().sqrt()).clamp(min=1e-12)
    dm = signs(generator, count) * size * log_uniform(generator, count, 1e-3, 4.0)
    down = -v.double() * uniform(generator, count, 0.1, 1.0)
    up = v.double().clamp(min=1e-24) * log_uniform(generator, count, 1e-3, 1e3)
    dv = torch.where(torch.rand(count, generator=generator) < 0.5, down, up)  # noqa: PLR2004 - evenly
    moved = torch.randint(4, (count,), generator=generator)
    return torch.where(moved == 0, 0.0, dm), torch.where(moved == 1, 0.0, dv)


class Accepted(NamedTuple):
    """Pairs that a guard accepts, those that are one state twice left out."""

    last: States  #: of each line
    before: States  #: from anywhere before it


def accepted_pairs(generator: torch.Generator, guard: Guard, count: int) -> Accepted:
    """Pairs that the guard accepts: the last one of each line, and one from anywhere before it.

    Args:
        generator: of the lines.
        guard: under test.
        count: lines from each kind of native state.
    """
    m, v = native_states(generator, count)
    dm, dv = _directions(generator, m, v)

    def at(share: Tensor) -> States:
        m_hat, v_hat = (m.double() + share * dm).float(), (v.double() + share * dv).float()
        return States(m, v, m_hat + 0.0, v_hat.abs())  # no minus zero, which a guard may leave out

    low, high = torch.zeros_like(dm), torch.ones_like(dm)
    low = torch.where(guard(*at(high)), high, low)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        accepts = guard(*at(middle))
        low, high = torch.where(accepts, middle, low), torch.where(accepts, high, middle)
    before = low * uniform(generator, len(low), 0.0, 1.0)  # a guard need not be monotone along a line

    def accepted(pairs: States) -> States:
        moved = (pairs.m != pairs.m_hat) | (pairs.v != pairs.v_hat)  # else nothing is to be decided
        return pairs.select(guard(*pairs) & moved)

    return Accepted(accepted(at(low)), accepted(at(before)))


def joined(first: States, second: States) -> States:
    """Both, one after the other."""
    return States(*(torch.cat(moments) for moments in zip(first, second, strict=True)))


def edge_pairs(generator: torch.Generator, count: int) -> States:
    """Pairs of ordinary states, moved by a thousandth to half of their size in one moment or both."""
    m, v = ordinary_states(generator, count)
    dm, dv = (1 + signs(generator, count) * log_uniform(generator, count, 1e-3, 0.5) for _ in range(2))
    moved = torch.randint(3, (count,), generator=generator)
    m_hat = torch.where(moved == 0, m.double(), m.double() * dm).float()
    v_hat = torch.where(moved == 1, v.double(), v.double() * dv).float()
    return States(m, v, m_hat, v_hat)


def quantised_pairs(generator: torch.Generator, grids: Grids, count: int) -> States:
    """States near the levels of a grid and their middles, with what nearest rounding makes of them.

    Among them zeros, subnormals, numbers beyond the grid, and pairs of which one moment is zero.
    """
    codec = Log8(grids.m, grids.v)
    m = _near_levels(generator, grids.m, count) * signs(generator, count).float()
    v = _near_levels(generator, grids.v, count)
    m, v = _with_zeros(generator, m), _with_zeros(generator, v)
    return States(m + 0.0, v, *codec.decode(*codec.encode(m + 0.0, v)))


def _near_levels(generator: torch.Generator, grid: LogGrid, count: int) -> Tensor:
    """A third levels, a third middles of two, a third anything down to subnormals; up to two ulps off."""
    half = torch.randint(2 * grid.levels - 1, (count,), generator=generator).double() / 2
    at = torch.exp2(grid.low + half * grid.step)
    anything = log_uniform(generator, count, _SMALLEST_SUBNORMAL, 4.0 * 2.0 ** grid.exponent(grid.levels - 1))
    values = torch.where(torch.rand(count, generator=generator) < 1 / 3, anything, at).float()
    off = torch.randint(-2, 3, (count,), generator=generator).to(torch.int32)
    return (values.view(torch.int32) + off).clamp(min=0).view(torch.float32)


def _with_zeros(generator: torch.Generator, values: Tensor) -> Tensor:
    """A tenth of the values replaced by zero."""
    return torch.where(torch.rand(len(values), generator=generator) < _ZEROS, 0.0, values)
