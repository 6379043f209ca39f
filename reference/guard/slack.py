"""How far binary32 can carry one update from the real-number formula, as exact rationals.

Source: the master inequality of the lemma chain in `proofs` (rounded trajectory against exact one), with `H0` the
reciprocal denominator at `g = 0`, `a` the magnitude of the step size, `b` the root of the bias correction:

    |U_fl - U| <= a * (CM*kM + CR*kR + CN*H0) / (1 - rho) + zd*H0 / (1 - rho) + zc
    kM = (1-w)|m| H0 + w b/sqrt(c)        kR = w|m| H0 + w b/sqrt(c)

It needs no bound on the gradient.  Its constants follow from how often each quantity is rounded, the unit roundoff `u`
and half the smallest subnormal `n`, and hold for any subset of fused products.  Nothing here is a copied number.

Claimed: the constants are upper bounds given the op model.  Assumed, and listed in the trusted base: the five
operations round to nearest; the platform's root is within one ulp of the correctly rounded one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.floats import FloatFormat, square_root_down, square_root_up
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.op_models import Interpolation, OpModel, SquareRoot, Update

#: Underflow of `c*g*g` is charged to `c*g**2` at this share of `u`, the rest to an absolute term (AM-GM).
_UNDERFLOW_SHARE = Fraction(1, 1000)


class RoundingSlack(NamedTuple):
    """`|U_fl - U| <= a*(moment*|m|*H0 + reciprocal*H0 + gradient) + floor`, in units of the parameter."""

    moment: Fraction  #: per `|m| * H0`, dimensionless
    reciprocal: Fraction  #: per `H0`, in units of the gradient
    gradient: Fraction  #: dimensionless
    floor: Fraction  #: in units of the parameter

    def worst(self, other: RoundingSlack) -> RoundingSlack:
        """A slack that covers both op models."""
        return RoundingSlack(*(max(a, b) for a, b in zip(self, other, strict=True)))


class DenominatorError(NamedTuple):
    """How far the binary32 denominator may be from the exact one; written with arithmetic alone, see `proofs`."""

    share: Fraction  #: `n*|g| <= share * c*g**2 + underflow`
    underflow: Fraction
    kappa: Fraction  #: relative error of `v'`
    v_floor: Fraction  #: absolute error of `v'`
    floor: Fraction  #: absolute error of `sqrt(v')/b + eps`
    of_sum: Fraction  #: relative error of that sum, the absolute one included
    rho: Fraction  #: the same of what divides the first moment


def denominator_error(
    model: OpModel, real: RealUpdate, u: Fraction, n: Fraction, root_up: Callable[[Fraction], Fraction]
) -> DenominatorError:
    """The error of the denominator of one update.

    Args:
        model: the op model.
        real: the formula's constants.
        u: the unit roundoff.
        n: half the smallest subnormal.
        root_up: gives a number at least the square root.
    """
    share = _UNDERFLOW_SHARE * u
    kappa = 3 * u + 3 * u**2 + u**3 + (1 + u) ** 2 * share
    underflow = n**2 / (4 * share * real.c)
    product_floor = (3 * n + u * n) if model.second_moment.squares_first else 2 * n
    v_floor = (1 + u) * (product_floor + (1 + u) * underflow) + n
    root_error = 3 * u if model.square_root is SquareRoot.PLATFORM else u
    growth = (1 + kappa / 2 + kappa**2 / 2) * (1 + root_error) * (1 + u) ** 2
    floor = (1 + root_error) * (1 + u) ** 2 * (root_up(v_floor) / real.root) + (2 + u) * n
    of_sum = rho = growth - 1 + floor / real.eps
    if model.update is Update.DIVIDE_TWICE:
        rho += (1 + of_sum) * u + n * real.step / real.eps  # of its quotient by the step size, at least eps/step
    return DenominatorError(share, underflow, kappa, v_floor, floor, of_sum, rho)


def interpolation_error(model: OpModel, options: StepOptions, u: Fraction, n: Fraction) -> tuple[Fraction, Fraction]:
    """How far the roundings before its last carry the first moment: relative to `w*(|m| + |g|)`, and absolutely.

    Arguments as `update_error`.
    """
    if model.interpolation is Interpolation.FMA and not options.interpolate_from_end:
        return u + u**2, n
    return 2 * u + 3 * u**2 + u**3, (2 + u) * n


def update_error(
    model: OpModel,
    options: StepOptions,
    real: RealUpdate,
    u: Fraction,
    n: Fraction,
    denominator: DenominatorError,
    root_down: Callable[[Fraction], Fraction],
) -> RoundingSlack:
    """The slack of one update, given the error of its denominator with `rho < 1`; with arithmetic alone, see `proofs`.

    Args:
        model: the op model.
        options: the per-tensor choices.
        real: the formula's constants.
        u: the unit roundoff.
        n: half the smallest subnormal.
        denominator: the error of the denominator.
        root_down: gives a positive number at most the square root.
    """
    rho, w, a = denominator.rho, real.w, real.step
    amplification = 1 / (1 - rho)
    interpolation, interpolation_floor = interpolation_error(model, options, u, n)
    # The product with the step size and the division, in either order, or fewer; or the last of two divisions.
    quotient = u if model.update is Update.DIVIDE_TWICE else 2 * u + u**2
    multiplies_first = model.update is Update.MULTIPLY_THEN_DIVIDE
    of_moment = (u + rho + quotient * (1 + u)) * amplification
    of_gradient = (1 + quotient) * interpolation * amplification
    of_reciprocal = (1 + quotient) * interpolation_floor * amplification
    largest_share = w * real.root / root_down(real.c)  # at least the supremum of w|g|H over all g
    return RoundingSlack(
        moment=real.complement * of_moment + w * of_gradient,
        reciprocal=of_reciprocal + ((1 + u) * n * amplification / a if multiplies_first else 0),
        gradient=(of_moment + of_gradient) * largest_share,
        floor=n if multiplies_first else (1 + u) * a * n + n,
    )


def rounding_slack(
    model: OpModel, options: StepOptions, scalars: Scalars[float], fmt: FloatFormat
) -> RoundingSlack | None:
    """The slack of one trajectory of `model`, or None where `eps` is too small for the bound to exist.

    Args:
        model: the op model.
        options: the per-tensor choices; they decide how the first moment is written.
        scalars: the kernel's constants; all that `real_update` uses must be non-zero.
        fmt: the format the model computes in.
    """
    u, n = fmt.unit_roundoff, fmt.half_smallest_subnormal
    real = real_update(model, scalars)
    denominator = denominator_error(model, real, u, n, square_root_up)
    if denominator.rho >= 1:
        return None
    return update_error(model, options, real, u, n, denominator, square_root_down)
