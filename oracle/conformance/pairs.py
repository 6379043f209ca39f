"""Pairs of a native and a recovered state on which a guard is tried: on its own edge, and everywhere.

A recovered state is moved away from its native one along a line, in the first moment, the second or both, until the
guard under test rejects it: so the pairs that it accepts last are found whatever formula it uses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.inputs import log_uniform, ordinary_states, signs, uniform
from guarded_moments.reference.guard.search import States

#: Halvings of the line, enough to end between neighbouring binary32 values on most lines.
_HALVINGS = 44
_LARGEST_M = 2.0**40
_LARGEST_V = 2.0**80

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


def accepted_pairs(generator: torch.Generator, guard: Guard, count: int) -> States:
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
    pairs = States(*(torch.cat(moments) for moments in zip(at(low), at(before), strict=True)))
    moved = (pairs.m != pairs.m_hat) | (pairs.v != pairs.v_hat)  # else nothing is to be decided
    return pairs.select(guard(*pairs) & moved)
