"""The constants of a guard for one tensor: the op model's scalars, the gradient bound and the rounding slack.

Every entry is a binary64 within one unit in the last place above the number it stands for, which is what
`RoundingCount.constant` assumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Generic, NamedTuple

import numpy as np
from typing_extensions import TypeVar

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import BINARY32, FloatFormat, round_down, round_up, square_root_up
from guarded_moments.reference.guard.overflow import require_finite
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.guard.slack import RoundingSlack, UpdateError, rounding_slack
from guarded_moments.reference.implementations import Implementation

T = TypeVar("T", default=float)

#: Keeps a quotient by a sum of two roots finite where both are zero; smaller than any root of a binary32.
TINY = 2.0**-1000


class GuardConstants(NamedTuple, Generic[T]):
    """In the notation of the guard: `q = sqrt(c)/b`, `H(y) = 1/(sqrt(y) + eps)`, `y = radicand*v + curvature*g*g`."""

    w: T  #: weight of the gradient in `m'`
    complement: T  #: `1 - w`, the weight of `m` in `m'`
    radicand: T  #: `beta2 / b**2`
    curvature: T  #: `c / b**2 = q**2`
    eps: T
    step: T  #: magnitude of the step size, in units of the parameter
    gradient_bound: T  #: the largest `|g|` of the claim; finite
    gap_cap: T  #: `1/q`
    radicand_cap: T  #: `1/(2 q)`
    root_cap: T  #: `1/(3 sqrt(3) q)`
    eps_cap: T  #: `1/(16 q eps)`
    slack_moment: T  #: see `RoundingSlack`
    slack_reciprocal: T
    slack_gradient: T
    slack_floor: T
    threshold: T  #: `tau * lr` rounded down: the deviation allowed, in units of the parameter


def guard_constants(
    claim: Claim,
    implementation: Implementation,
    options: StepOptions,
    scalars: Scalars[float],
    lr: float,
    fmt: FloatFormat = BINARY32,
) -> GuardConstants[float]:
    """Derive the constants exactly and round each up once.

    Args:
        claim: tolerance and gradient bound.
        implementation: the op models of the body and the tail of a tensor; the constants cover both.
        options: per-tensor choices of the step.
        scalars: the kernel's constants at the step of the claim.
        lr: the learning rate that the tolerance counts in.
        fmt: the format the op models compute in.

    Raises:
        InvalidClaimError: the gradient bound is finite and above the op model's overflow limit.
        UnsupportedError: `eps`, `lr` or a moment weight leaves nothing that the guard could bound; the text says which.
    """
    _refuse_what_nothing_covers(options, scalars, lr)
    reals = {real_update(model, scalars) for model in implementation.models} if scalars.root else set()
    if len(reals) != 1:  # all op models of one tensor approximate one formula
        msg = f"the kernel constants {scalars} are not ones that the guard covers"
        raise UnsupportedError(msg)
    real = reals.pop()
    if not (0 < real.w <= 1 and 0 < real.c <= 1):
        msg = f"betas {1 - float(real.w)!r}, {float(real.beta2)!r} leave a moment without its gradient"
        raise UnsupportedError(msg)

    slack: RoundingSlack | None = None
    for model in implementation.models:
        of_model = rounding_slack(model, options, scalars, fmt)
        if of_model is None:
            msg = f"eps {scalars.eps!r} is so small that rounding alone may move an update by any amount"
            raise UnsupportedError(msg)
        slack = of_model if slack is None else slack.worst(of_model)
    if slack is None:  # an implementation has at least one op model
        raise AssertionError(implementation)

    limit = round_down(slack.largest_gradient)
    bound = claim.gradient_bound.value
    if limit <= 0:
        msg = f"{implementation.name} may overflow for these hyperparameters ({scalars}) at any gradient"
        raise UnsupportedError(msg)
    if bound > limit and not math.isinf(bound):
        msg = (
            f"grad-bound {bound:g} is above the overflow limit {limit:.4g} of {implementation.name}; "
            "use inf, which means every gradient up to that limit, or a smaller bound"
        )
        raise InvalidClaimError(msg)

    for model in implementation.models:
        require_finite(model, options, scalars, min(bound, limit), fmt)

    exact = exact_constants(real, slack, square_root_up)
    rounded = GuardConstants(*(round_up(value) for value in exact))
    return rounded._replace(
        gradient_bound=min(bound, limit), threshold=round_down(Fraction(claim.tolerance.value) * Fraction(lr))
    )


def exact_constants(
    real: RealUpdate,
    slack: RoundingSlack | UpdateError,
    root_up: Callable[[Fraction], Fraction],
    gradient_bound: Fraction = Fraction(0),
    threshold: Fraction = Fraction(0),
) -> GuardConstants[Fraction]:
    """The constants before any is rounded; written with arithmetic alone, so that `proofs` runs it on symbols.

    Args:
        real: the formula's constants.
        slack: of one trajectory.
        root_up: gives a number at least the square root.
        gradient_bound: passed through.
        threshold: passed through.
    """
    c, beta2, b, eps = real.c, real.beta2, real.root, real.eps
    inverse_q = b / c * root_up(c)
    three_root_three = 9 / root_up(Fraction(3))  # from below
    return GuardConstants(
        w=real.w,
        complement=real.complement,
        radicand=beta2 / b**2,
        curvature=c / b**2,
        eps=eps,
        step=real.step,
        gradient_bound=gradient_bound,
        gap_cap=inverse_q,
        radicand_cap=inverse_q / 2,
        root_cap=inverse_q / three_root_three,
        eps_cap=inverse_q / (16 * eps),
        slack_moment=slack.moment,
        slack_reciprocal=slack.reciprocal,
        slack_gradient=slack.gradient,
        slack_floor=slack.floor,
        threshold=threshold,
    )


def _refuse_what_nothing_covers(options: StepOptions, scalars: Scalars[float], lr: float) -> None:
    """Raise `UnsupportedError` for constants of which no tensor's guard can be made."""
    if scalars.eps == 0:
        msg = "eps is 0 in binary32: the update is unbounded where v is 0, so nothing can be guaranteed"
        raise UnsupportedError(msg)
    if not (lr > 0 and all(math.isfinite(x) for x in scalars) and scalars.step != 0):
        msg = (
            f"lr {lr!r} gives a step size of {scalars.step!r}: a tolerance counted in learning rates means nothing; "
            "pass the learning rate of the run that will resume, --lr on the command line"
        )
        raise UnsupportedError(msg)
    if options.interpolate_from_end and not (scalars.one_minus_w == 1 - scalars.w == -scalars.w_minus_one):
        msg = (
            f"the weight {scalars.one_minus_w!r} of m is not 1 - {scalars.w!r}: a compiled step forms it in double "
            "precision for this beta1, and the guard does not cover that"
        )
        raise UnsupportedError(msg)


def binary64_constants(constants: GuardConstants[float]) -> GuardConstants[Any]:
    """The constants as NumPy's binary64 scalars, which compiled code takes."""
    return GuardConstants(*(np.float64(value) for value in constants))


def counted_constants() -> GuardConstants[int]:
    """The constants in `RoundingCount`: each within one unit in the last place of the number it stands for."""
    op = RoundingCount()
    return GuardConstants(*(op.constant(0.0) for _ in GuardConstants._fields))
