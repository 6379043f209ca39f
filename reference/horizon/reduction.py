"""A later update as a first one: the exact reduction of update `j` under one sequence of gradients.

With `q = beta1**2/beta2` and `s = sqrt(beta2)**j`, the moments before the division of update `j` are

    M = s*(r*m + x),   V = s*s*(v + c*y*y),   r = (beta1/sqrt(beta2))**j

with `x` and `y` from the gradients alone, and by Cauchy and Schwarz `|x| <= w_j*y`, `w_j = w*sqrt(1 + q + ... +
q**(j-1))`; every such pair comes from gradients that grow like `(beta1/beta2)**i`.  The deviation is affine in `x`, so
its supremum over all sequences is that over `x = w_j*y` and `x = -w_j*y`: that of one update, from the same two states,
with `y` for the gradient and with the constants below (`proofs.horizon` has the machine's part of this).

Where `|g_i| <= G`, `y` is at most `G*reach`; for finite `G` this is an upper bound, and the supremum may be smaller.

Claimed: each constant is at least the number it stands for, and at most `2**-140` above it relative to its size, but
for the weight of the moments where it is below `LEAST_WEIGHT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.reference.floats import square_root_up
from guarded_moments.reference.guard.real_update import RealUpdate

#: Significant bits that are kept of exact numbers that would grow with every update.
_BITS = 200
#: What is left of the moments is taken to be at least that: far below what matters, far above where binary64 ends.  The
#: supremum over both signs of the gradients grows with it.
LEAST_WEIGHT = Fraction(1, 2**40)


class Reduced(NamedTuple):
    """What stands for update `j`, in units in which the state's second moments do not shrink."""

    update: int  #: `j`, from 1
    real: RealUpdate  #: constants of the one update that stands for it
    reach: Fraction  #: the largest `y` for gradients up to 1
    scale: Fraction  #: `1/s`: what multiplies `H` in these units


def reduced(updates: Iterable[RealUpdate]) -> Iterator[Reduced]:
    """Reduce each of the updates that follow one another.

    Args:
        updates: their formulas, which differ in `root`, `eps` and `step` alone; `beta2` is positive.
    """
    decay, weight, reach, scale = Fraction(1), Fraction(0), Fraction(0), Fraction(1)  # q**j, sums, beta2**-j
    for update, real in enumerate(updates, start=1):
        ratio = real.complement**2 / real.beta2
        weight, decay = coarse(1 + ratio * weight), coarse(ratio * decay)
        scale = coarse(scale / real.beta2)
        reach = coarse(reach + scale)
        shrunk = square_root_up(scale)
        stands_for = RealUpdate(
            w=real.w * square_root_up(weight),
            complement=max(square_root_up(decay), LEAST_WEIGHT),
            c=real.c,
            beta2=Fraction(1),
            root=Fraction(1),
            eps=real.eps * real.root * shrunk,
            step=real.step * real.root,
        )
        yield Reduced(update, RealUpdate(*map(coarse, stands_for)), square_root_up(reach), shrunk)


def coarse(value: Fraction) -> Fraction:
    """The number, or one at most `2**-199` above it relative to its size, that has `_BITS` significant bits."""
    excess = value.numerator.bit_length() - value.denominator.bit_length() - _BITS
    unit = Fraction(2) ** excess
    return -(-value // unit) * unit
