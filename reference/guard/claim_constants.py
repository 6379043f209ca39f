"""The guard's constants for a claim about one tensor, or why nothing can be guaranteed there.

What a theorem or a count of roundings presupposes of the constants is checked here, once for a tensor: the weights,
`rho < 1`, that no operation of the update overflows (`overflow`) and that none of the guard's own leaves the normal
range of binary64 (`binary64_range`).

Claimed: `guard_constants` returns only constants for which all preconditions of `proofs` about constants hold.
"""

from __future__ import annotations

import math
from fractions import Fraction

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import BINARY32, FloatFormat, round_down, round_up, square_root_up
from guarded_moments.reference.guard.binary64_range import require_normal
from guarded_moments.reference.guard.constants import GuardConstants, exact_constants
from guarded_moments.reference.guard.overflow import largest_finite_gradient
from guarded_moments.reference.guard.real_update import real_update
from guarded_moments.reference.guard.slack import RoundingSlack, rounding_slack
from guarded_moments.reference.implementations import Implementation


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

    bound = claim.gradient_bound.value
    limit = min(largest_finite_gradient(model, options, scalars, bound, fmt) for model in implementation.models)
    if limit < bound and not math.isinf(bound):
        msg = (
            f"grad-bound {bound:g} is above the overflow limit {limit:.4g} of {implementation.name}; "
            "use inf, which means every gradient up to that limit, or a smaller bound"
        )
        raise InvalidClaimError(msg)

    exact = exact_constants(real, slack, square_root_up)
    rounded = GuardConstants(*(round_up(value) for value in exact))
    constants = rounded._replace(
        gradient_bound=limit, threshold=round_down(Fraction(claim.tolerance.value) * Fraction(lr))
    )
    require_normal(constants, fmt)
    return constants


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
