"""Later updates, exhaustively, in formats small enough to enumerate every sequence of two or three gradients.

The same sources as in `small_formats`, and those of the horizon: `reduction`, `carrying` and `accumulation` of
`reference.horizon` for the format's own unit roundoff, and the closed form with the constants that they give.  Nothing
is sampled among gradients: for each pair of states the largest deviation of the last update over all sequences is
compared with the bound.

Claimed: `Exhausted.violations` counts every pair of states asked for whose deviation exceeds the bound.  Trusted:
`SmallFormat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product

import torch
from torch import Tensor

from guarded_moments.proofs.small_formats import Exhausted, Setting, SmallFormat
from guarded_moments.reference.adam import Scalars, make_moments, make_update
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.floats import round_up, square_root_down, square_root_up
from guarded_moments.reference.guard.closed_form import bound_inflation, lifted, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants, exact_constants
from guarded_moments.reference.guard.real_update import real_update
from guarded_moments.reference.horizon.accumulation import slack_of_later
from guarded_moments.reference.horizon.carrying import errors_of
from guarded_moments.reference.horizon.reduction import reduced


def later_constants_of(setting: Setting, updates: int) -> GuardConstants[float]:
    """The constants of the last of some updates, all with the same constants of the kernel.

    Raises:
        ValueError: the format is too coarse: rounding may move an update by any amount.
    """
    u, n = setting.fmt.unit_roundoff, setting.fmt.half_smallest_subnormal
    real = real_update(setting.model, setting.scalars)
    own = errors_of((setting.model,), setting.options, real, u, n, square_root_up, square_root_down)
    stand_ins = list(reduced([real] * updates))
    slack = None if own is None else list(slack_of_later((own, real, one) for one in stand_ins))[-1]
    if slack is None:
        raise ValueError(f"after {updates} updates rounding has no bound in {setting.fmt}")
    shared = Fraction(setting.largest) * stand_ins[-1].reach
    exact = exact_constants(stand_ins[-1].real, slack, square_root_up, gradient_bound=shared)
    return GuardConstants(*(round_up(value) for value in exact))


def every_sequence(
    setting: Setting,
    updates: int,
    tolerance: float,
    first: Tensor,
    second: Sequence[tuple[int, int]],
    *,
    without: Sequence[str] = (),
) -> Exhausted:
    """Every sequence of gradients of the format up to `setting.largest`, for some pairs of states.

    Args:
        setting: format, op model and hyperparameters.
        updates: how many; the last is looked at.
        tolerance: at which pairs count as accepted, in units of the parameter.
        first: the first moments, native and recovered, each with each; float64 (n,).
        second: pairs of second moments, by their places among the values of the format.
        without: constants of the slack to leave out of the bound.
    """
    small = SmallFormat(setting.fmt)
    magnitudes = small.values(setting.largest)
    gradients = torch.cat([-magnitudes.flip(0)[:-1], magnitudes])
    constants = lifted(later_constants_of(setting, updates)._replace(**dict.fromkeys(without, 0.0)))
    bound_of, found = make_deviation_bound(TorchBinary64()), Exhausted()

    @cache
    def last_updates(place: int) -> Tensor:
        return _last_updates(setting, small, first, magnitudes[place], gradients, updates)

    for i, j in second:
        m, v, m_hat, v_hat = torch.broadcast_tensors(first[:, None], magnitudes[i], first[None, :], magnitudes[j])
        bound = bound_of(constants, m, v, m_hat, v_hat) * bound_inflation()
        native, recovered = last_updates(i), last_updates(j)
        deviation = torch.stack([(recovered - row).abs().amax(dim=1) for row in native])
        found.add(bound, deviation, native.shape[1], tolerance)
    return found


def second_moments_of(setting: Setting, stride: int) -> list[tuple[int, int]]:
    """Every so many pairs of second moments, by their places."""
    count = len(SmallFormat(setting.fmt).values(setting.largest))
    return list(product(range(count), range(count)))[::stride]


def _last_updates(
    setting: Setting, small: SmallFormat, first: Tensor, v: Tensor, gradients: Tensor, updates: int
) -> Tensor:
    """The last update of every first moment (rows) under every sequence (columns)."""
    moments = make_moments(small, setting.model, setting.options)
    update = make_update(small, setting.model, setting.options)
    scalars = Scalars(*(small.constant(value) for value in setting.scalars))
    m, seconds = first, v.expand_as(first)
    for _ in range(updates - 1):
        rows, columns = torch.broadcast_tensors(m.reshape(len(first), -1)[:, :, None], gradients)
        m, seconds = moments(rows, seconds.reshape(len(first), -1)[:, :, None].expand_as(rows), columns, scalars)
    rows, columns = torch.broadcast_tensors(m.reshape(len(first), -1)[:, :, None], gradients)
    last = update(rows, seconds.reshape(len(first), -1)[:, :, None].expand_as(rows), columns, scalars)
    return last.reshape(len(first), -1)
