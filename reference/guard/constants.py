"""The constants of a guard for one tensor: the op model's scalars, the gradient bound and the rounding slack.

Every entry is a binary64 within one unit in the last place above the number it stands for, which is what
`RoundingCount.constant` assumes.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import BINARY32, FloatFormat, round_down, round_up, square_root_up
from guarded_moments.reference.guard.slack import RoundingSlack, rounding_slack
from guarded_moments.reference.op_models import Implementation

#: Keeps a quotient by a sum of two roots finite where both are zero; smaller than any root of a binary32.
TINY = 2.0**-1000


class GuardConstants(NamedTuple):
    """In the notation of the guard: `q = sqrt(c)/b`, `H(y) = 1/(sqrt(y) + eps)`, `y = radicand*v + curvature*g*g`."""

    w: float  #: weight of the gradient in `m'`
    complement: float  #: `1 - w`
    radicand: float  #: `beta2 / b**2`
    curvature: float  #: `c / b**2 = q**2`
    eps: float
    step: float  #: magnitude of the step size, in units of the parameter
    gradient_bound: float  #: the largest `|g|` of the claim; finite
    gap_cap: float  #: `1/q`
    radicand_cap: float  #: `1/(2 q)`
    root_cap: float  #: `1/(3 sqrt(3) q)`
    eps_cap: float  #: `1/(16 q eps)`
    slack_moment: float  #: see `RoundingSlack`
    slack_reciprocal: float
    slack_gradient: float
    slack_floor: float
    threshold: float  #: `tau * lr` rounded down: the deviation allowed, in units of the parameter


def guard_constants(
    claim: Claim,
    implementation: Implementation,
    options: StepOptions,
    scalars: Scalars[float],
    lr: float,
    fmt: FloatFormat = BINARY32,
) -> GuardConstants:
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
    if scalars.eps == 0:
        msg = "eps is 0 in binary32: the update is unbounded where v is 0, so nothing can be guaranteed"
        raise UnsupportedError(msg)
    if not (lr > 0 and scalars.step != 0 and math.isfinite(scalars.step)):
        msg = (
            f"lr {lr!r} gives a step size of {scalars.step!r}: a tolerance counted in learning rates means nothing; "
            "pass the learning rate of the run that will resume, --lr on the command line"
        )
        raise UnsupportedError(msg)
    if not (0 < scalars.root <= 1 and 0 < scalars.c <= 1 and 0 < scalars.w <= 1):
        msg = f"the betas give the kernel constants {scalars}, which the guard does not cover"
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

    w, c, beta2, b, eps = (Fraction(x) for x in (scalars.w, scalars.c, scalars.beta2, scalars.root, scalars.eps))
    inverse_q = b / c * square_root_up(c)
    three_root_three = 9 / square_root_up(Fraction(3))  # from below
    return GuardConstants(
        w=scalars.w,
        complement=round_up(1 - w),
        radicand=round_up(beta2 / b**2),
        curvature=round_up(c / b**2),
        eps=scalars.eps,
        step=abs(scalars.step),
        gradient_bound=min(bound, limit),
        gap_cap=round_up(inverse_q),
        radicand_cap=round_up(inverse_q / 2),
        root_cap=round_up(inverse_q / three_root_three),
        eps_cap=round_up(inverse_q / (16 * eps)),
        slack_moment=round_up(slack.moment),
        slack_reciprocal=round_up(slack.reciprocal),
        slack_gradient=round_up(slack.gradient),
        slack_floor=round_up(slack.floor),
        threshold=round_down(Fraction(claim.tolerance.value) * Fraction(lr)),
    )
