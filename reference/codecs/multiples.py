"""First moments as multiples of a step times the root of the second moment: what `ratio8` and `entropy` share.

A step is a bfloat16, a root a binary32, a multiple an integer below 2**15.

Claimed: `first_moment` is one product of binary32 numbers, rounded to nearest, `multiple * step` being exact.
`nearest_multiple` is the nearest, ties to even: in binary64 `step * root` is exact, so that the quotient is of 24 bits
by 32, a half-integer or at least `2**-33` from each, and below `2**15` it is rounded by `2**-39` at most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.reference.errors import FormatError

#: The least step: a product with the least root, 2**-63, is a normal number.
SMALLEST_STEP = 2.0**-62
_DROPPED_BITS = 16  #: of a binary32, to be a bfloat16
_STEP_BITS = 1 << 16


def nearest_multiple(m: Tensor, step: Tensor, root: Tensor, largest: int) -> Tensor:
    """The multiples of `step * root` nearest to first moments, clamped; 0 where the root is 0; int64, (n,).

    Args:
        m: finite float32, (n,).
        step: float32, (n,) or (1,).
        root: float32, (n,).
        largest: magnitude of a multiple.
    """
    unit = step.double() * root.double()
    quotient = m.double() / torch.where(root > 0, unit, torch.inf)
    return quotient.round().clamp(-largest, largest).long()


def first_moment(multiple: Tensor, step: Tensor, root: Tensor) -> Tensor:
    """What multiples, int64, stand for: float32, (n,); other arguments as above."""
    return multiple.float() * step * root


def require_steps(steps: Tensor, count: int, end: float) -> None:
    """Refuse what are not so many bfloat16 values from the least step to below `end`.

    Raises:
        FormatError: they are something else, NaN among it.
    """
    inside = (steps >= SMALLEST_STEP) & (steps < end)
    short = steps.bfloat16().float() == steps
    if steps.dtype is not torch.float32 or steps.shape != (count,) or not bool((inside & short).all()):
        raise FormatError(f"steps are not {count} bfloat16 values from {SMALLEST_STEP:g} to {end:g}")


def steps_up(steps: Tensor) -> Tensor:
    """Positive numbers as the bfloat16 values that are at least them: float32."""
    bits = steps.float().view(torch.int32)
    return (-(-bits >> _DROPPED_BITS) << _DROPPED_BITS).view(torch.float32)


def bits_of_steps(steps: Tensor) -> Tensor:
    """The upper half of each, int16."""
    return (steps.view(torch.int32) >> _DROPPED_BITS).to(torch.int16)


def steps_of_bits(bits: Tensor) -> Tensor:
    """The steps of such halves, int64 from 0 to 65535."""
    return (bits << _DROPPED_BITS).to(torch.int32).view(torch.float32)


def step_stated(stated: object) -> Tensor:
    """The one step that a file states by its bits: float32, (1,).

    Raises:
        FormatError: it states none.
    """
    if type(stated) is not int or not 0 <= stated < _STEP_BITS:
        raise FormatError(f"step is {stated!r}, expected the sixteen bits of a bfloat16")
    return steps_of_bits(torch.tensor([stated]))
