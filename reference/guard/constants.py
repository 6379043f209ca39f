"""The constants of a guard for one tensor: the op model's scalars, the gradient bound and the rounding slack.

Every entry is a binary64 within one unit in the last place above the number it stands for, which is what
`RoundingCount.constant` assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Generic, NamedTuple

import numpy as np
from typing_extensions import TypeVar

from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.guard.slack import RoundingSlack

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


def exact_constants(
    real: RealUpdate,
    slack: RoundingSlack,
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


def binary64_constants(constants: GuardConstants[float]) -> GuardConstants[Any]:
    """The constants as NumPy's binary64 scalars, which compiled code takes."""
    return GuardConstants(*(np.float64(value) for value in constants))


def counted_constants() -> GuardConstants[int]:
    """The constants in `RoundingCount`: each within one unit in the last place of the number it stands for."""
    op = RoundingCount()
    return GuardConstants(*(op.constant(0.0) for _ in GuardConstants._fields))
