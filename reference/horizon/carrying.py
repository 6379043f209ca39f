"""Rounding over several updates: what one update does to the errors that its state has already.

The binary32 state `(m, v)` of a run is near the state `(M, V)` that the formula gives from the same start and the same
gradients:

    |M| <= A,   |m - M| <= Z,   |v - V| <= relative*V + absolute

Written with arithmetic alone, so that `proofs` runs it on symbols; everything is linear in `A`, `Z` and `|g|`, so that
`accumulation` runs it on coefficients.

Claimed: where these hold before an update, they hold after it with what `first_moment_after` and `second_moment_after`
give, and the binary32 update is as near to that of the formula as `update_distance` says.  A single update is as far
off as `guard.slack` says of its own start; here come the errors that the start had.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.guard.slack import (
    DenominatorError,
    RoundingSlack,
    denominator_error,
    interpolation_error,
    update_error,
)
from guarded_moments.reference.op_models import OpModel


class OwnError(NamedTuple):
    """What one update adds of its own, for the state that it starts from."""

    moment: Fraction  #: `|m' - (complement*m + w*g)| <= moment*|m| + gradient*w*|g| + moment_floor`
    gradient: Fraction
    moment_floor: Fraction
    second_moment: Fraction  #: `|v' - (beta2*v + c*g*g)|` over that number
    second_moment_floor: Fraction
    update: RoundingSlack  #: the master inequality of `guard.slack`

    def worst(self, other: OwnError) -> OwnError:
        """An error that covers both op models."""
        return OwnError(
            moment=max(self.moment, other.moment),
            gradient=max(self.gradient, other.gradient),
            moment_floor=max(self.moment_floor, other.moment_floor),
            second_moment=max(self.second_moment, other.second_moment),
            second_moment_floor=max(self.second_moment_floor, other.second_moment_floor),
            update=self.update.worst(other.update),
        )


class SecondMomentError(NamedTuple):
    """`|v - V| <= relative*V + absolute`."""

    relative: Fraction
    absolute: Fraction


class FirstMomentError(NamedTuple):
    """`|M| <= magnitude` and `|m - M| <= error`: numbers, or coefficients of what both are linear in."""

    magnitude: Fraction
    error: Fraction


#: Both runs start from binary32 states: nothing is lost yet.
NOT_YET = SecondMomentError(Fraction(0), Fraction(0))


def own_error(
    model: OpModel,
    options: StepOptions,
    real: RealUpdate,
    u: Fraction,
    n: Fraction,
    denominator: DenominatorError,
    root_down: Callable[[Fraction], Fraction],
) -> OwnError:
    """The error of one update, given that of its denominator with `rho < 1`.

    Arguments as `guard.slack.update_error`.
    """
    interpolation, floor = interpolation_error(model, options, u, n)
    return OwnError(
        moment=u * real.complement + real.w * interpolation,
        gradient=u + interpolation,
        moment_floor=floor,
        second_moment=denominator.kappa,
        second_moment_floor=denominator.v_floor,
        update=update_error(model, options, real, u, n, denominator, root_down),
    )


def first_moment_after(
    own: OwnError, real: RealUpdate, before: FirstMomentError, gradient: Fraction, floor: Fraction
) -> FirstMomentError:
    """The errors of `m` after an update.

    Args:
        own: the update's.
        real: its formula.
        before: those of the state.
        gradient: `|g|`.
        floor: `own.moment_floor`, or 0 for coefficients of anything but 1.
    """
    computed = before.magnitude + before.error  # at least |m|
    return FirstMomentError(
        magnitude=real.complement * before.magnitude + real.w * gradient,
        error=real.complement * before.error + own.moment * computed + own.gradient * real.w * gradient + floor,
    )


def second_moment_after(own: OwnError, real: RealUpdate, before: SecondMomentError) -> SecondMomentError:
    """The errors of `v` after an update."""
    return SecondMomentError(
        relative=(1 + own.second_moment) * (1 + before.relative) - 1,
        absolute=(1 + own.second_moment) * real.beta2 * before.absolute + own.second_moment_floor,
    )


def denominator_distance(
    real: RealUpdate, before: SecondMomentError, root_up: Callable[[Fraction], Fraction]
) -> Fraction:
    """How far, relative to itself, the exact denominator moves with the error that `v` had before the update.

    Args:
        real: the update's formula.
        before: with `relative <= 1`.
        root_up: gives a number at least the square root.
    """
    relative = before.relative
    return relative / 2 + relative**2 / 2 + root_up(real.beta2 * before.absolute) / real.root / real.eps


def per_gradient(own: OwnError, real: RealUpdate, root_up: Callable[[Fraction], Fraction]) -> Fraction:
    """What multiplies `|g| H` in the update's own slack, since `sqrt(c) |g| H / root` is at most 1 there.

    Args:
        own: the update's error.
        real: its formula.
        root_up: gives a number at least the square root.
    """
    return own.update.gradient * (root_up(real.c) / real.root)


def update_distance(
    own: OwnError,
    real: RealUpdate,
    before: FirstMomentError,
    gradient: Fraction,
    first_moment: Fraction,
    distance: Fraction,
    of_gradient: Fraction,
    floor: Fraction,
) -> Fraction:
    """How far the binary32 update is from the formula's, over the step size and `H`.

    `|U_fl - U| <= step * this * H + own.update.floor`, with `H` the reciprocal of the formula's denominator.

    Args:
        own: the update's.
        real: its formula.
        before: the errors of `m` before it.
        gradient: `|g|`.
        first_moment: at least `|M|` after the update.
        distance: `denominator_distance`, below 1.
        of_gradient: `per_gradient`.
        floor: `own.update.reciprocal`, or 0 for coefficients of anything but 1.
    """
    computed = before.magnitude + before.error
    own_part = own.update.moment * computed + of_gradient * gradient + floor
    return (own_part + real.complement * before.error + distance * first_moment) / (1 - distance)


def errors_of(
    models: tuple[OpModel, ...],
    options: StepOptions,
    real: RealUpdate,
    u: Fraction,
    n: Fraction,
    root_up: Callable[[Fraction], Fraction],
    root_down: Callable[[Fraction], Fraction],
) -> OwnError | None:
    """The error of one update that covers some op models; None where `eps` is too small for any."""
    worst: OwnError | None = None
    for model in models:
        denominator = denominator_error(model, real, u, n, root_up)
        if denominator.rho >= 1:
            return None
        own = own_error(model, options, real, u, n, denominator, root_down)
        worst = own if worst is None else worst.worst(own)
    return worst
