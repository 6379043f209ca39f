"""The rounding slack of a later update: `carrying`, unrolled over all the updates before it.

What a run has lost before update `j` is linear in `|m|` of the start, in the magnitudes of the gradients and in 1.  The
coefficients of the gradients meet them by Cauchy and Schwarz, in the units of `reduction`:

    sum_i a_i*|g_i|  <=  sqrt(sum_i a_i**2 / beta2**(j-i)) * y * s

so that the slack of update `j` has the shape of the slack of one update, and guard and search take it as they are.

Claimed: `|U_fl - U| <= step*((moment*|m| + reciprocal)*H(y) + gradient*sqrt(c)*y*H(y)) + floor` for the binary32 run
and the formula's after `j` updates from one binary32 state, for every sequence of gradients at which nothing overflows;
`step`, `H` and `y` those of `reduction`.  Proved of one update by `proofs`, with the errors before it as hypotheses;
that it holds after every update because it does after the first and carries over is induction, on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from guarded_moments.reference.floats import square_root_down, square_root_up
from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.guard.slack import RoundingSlack
from guarded_moments.reference.horizon.carrying import (
    NOT_YET,
    FirstMomentError,
    OwnError,
    SecondMomentError,
    denominator_distance,
    first_moment_after,
    per_gradient,
    second_moment_after,
    update_distance,
)
from guarded_moments.reference.horizon.reduction import Reduced, coarse

_ZERO, _ONE = Fraction(0), Fraction(1)
_NOTHING, _ITSELF = FirstMomentError(_ZERO, _ZERO), FirstMomentError(_ONE, _ZERO)


@dataclass
class _Lost:
    """What was lost before an update, in the units of `reduction`: coefficients of `|m|`, of 1, and of each gradient.

    The coefficients of a gradient depend on its age alone.  Their sums of squares and products are kept in place of
    them: of what reaches `|m|` (magnitude and error together) and of what is error.
    """

    second_moment: SecondMomentError = NOT_YET
    moment: FirstMomentError = _ITSELF
    floor: FirstMomentError = _NOTHING
    oldest: FirstMomentError | None = None  #: of the first gradient: one of each younger age stands in the sums
    computed_squared: Fraction = _ZERO
    both: Fraction = _ZERO
    error_squared: Fraction = _ZERO

    def after(self, own: OwnError, real: RealUpdate, scale: Fraction) -> _Lost:
        """What is lost after an update; `scale` is what `1/sqrt(beta2)` is at most."""

        def aged(of: FirstMomentError) -> FirstMomentError:
            return _scaled(first_moment_after(own, real, of, _ZERO, _ZERO), scale)

        entering = first_moment_after(own, real, _NOTHING, _ONE, _ZERO)
        oldest = FirstMomentError(*map(coarse, entering)) if self.oldest is None else aged(self.oldest)
        computed = oldest.magnitude + oldest.error
        floor = first_moment_after(own, real, self.floor, _ZERO, own.moment_floor)
        return _Lost(
            second_moment=SecondMomentError(*map(coarse, second_moment_after(own, real, self.second_moment))),
            moment=aged(self.moment),
            floor=FirstMomentError(*map(coarse, floor)),
            oldest=oldest,
            computed_squared=coarse(self.computed_squared + computed**2),
            both=coarse(self.both + computed * oldest.error),
            error_squared=coarse(self.error_squared + oldest.error**2),
        )


def slack_of_later(
    updates: Iterable[tuple[OwnError, RealUpdate, Reduced]],
) -> Iterator[RoundingSlack | None]:
    """The slack of one trajectory at each update, in the units of `reduction`; None where it is no longer bounded.

    Args:
        updates: of those that follow one another: own error, formula and reduction.
    """
    lost = _Lost()
    for own, real, stands_for in updates:
        distance = denominator_distance(real, lost.second_moment, square_root_up)
        if lost.second_moment.relative > 1 or distance >= 1:
            yield None
            return
        yield _slack(own, real, stands_for, lost, coarse(distance))
        lost = lost.after(own, real, square_root_up(1 / real.beta2))


def _slack(own: OwnError, real: RealUpdate, stands_for: Reduced, lost: _Lost, distance: Fraction) -> RoundingSlack:
    scale = square_root_up(1 / real.beta2)
    share = per_gradient(own, real, square_root_up)

    def distance_of(before: FirstMomentError, gradient: Fraction, first_moment: Fraction, floor: Fraction) -> Fraction:
        return update_distance(own, real, before, gradient, first_moment, distance, share, floor)

    # What the update makes of each part of what was lost; it is linear, so parts of 1 tell its coefficients.
    of_computed = distance_of(_ITSELF, _ZERO, _ZERO, _ZERO) * scale
    of_error = distance_of(FirstMomentError(-_ONE, _ONE), _ZERO, _ZERO, _ZERO) * scale
    of_gradient = distance_of(_NOTHING, _ONE, _ZERO, _ZERO)
    squares = (
        of_gradient**2
        + of_computed**2 * lost.computed_squared
        + 2 * of_computed * of_error * lost.both
        + of_error**2 * lost.error_squared
    )
    per_y = square_root_up(squares) + distance_of(_NOTHING, _ZERO, stands_for.real.w, _ZERO)
    before = _scaled(lost.moment, scale)
    return RoundingSlack(
        moment=coarse(distance_of(before, _ZERO, stands_for.real.complement, _ZERO)),
        reciprocal=coarse(distance_of(lost.floor, _ZERO, _ZERO, own.update.reciprocal) * stands_for.scale),
        gradient=coarse(per_y / square_root_down(real.c)),
        floor=own.update.floor,
    )


def _scaled(of: FirstMomentError, scale: Fraction) -> FirstMomentError:
    return FirstMomentError(coarse(of.magnitude * scale), coarse(of.error * scale))
