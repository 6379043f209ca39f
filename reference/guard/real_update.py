"""The update that an op model approximates, as a formula over the reals with the program's own constants.

    U(g) = step * (complement*m + w*g) / (sqrt(beta2*v + c*g*g)/root + eps)

Each constant is the binary32 value that the kernel holds, read as an exact rational, so that no rounding of a constant
is charged to anybody: both trajectories use the same.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.op_models import Correction, Interpolation, OpModel, SecondMoment, Update


class RealUpdate(NamedTuple):
    """The constants of the formula above; all positive, `step` and the update's sign are the caller's."""

    w: Fraction
    complement: Fraction
    c: Fraction
    beta2: Fraction
    root: Fraction
    eps: Fraction
    step: Fraction


def real_update(model: OpModel, scalars: Scalars[float]) -> RealUpdate:
    """Read a kernel's constants as the formula's.

    Args:
        model: the op model; it decides which constants enter and where.
        scalars: the kernel's constants; `root` must not be zero.
    """
    return formula_constants(model, Scalars(*(Fraction(value) for value in scalars)))


def formula_constants(model: OpModel, scalars: Scalars[Fraction]) -> RealUpdate:
    """The constants of the formula from those of a kernel, exactly.

    Written with arithmetic alone, so that `proofs` runs it on symbols.
    """
    twice = model.interpolation is Interpolation.FMA_TWICE
    complement = scalars.beta1 if twice else 1 - scalars.w
    root = abs(scalars.root)
    return RealUpdate(
        w=1 - complement,
        complement=complement,
        c=1 - scalars.beta2 if model.second_moment is SecondMoment.FMA_TWICE else scalars.c,
        beta2=scalars.beta2,
        root=1 / root if model.correction is Correction.MULTIPLY else root,
        eps=abs(scalars.eps),
        step=Fraction(1) if model.update is Update.QUOTIENT else abs(scalars.step),
    )
