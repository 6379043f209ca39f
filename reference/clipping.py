"""Gradient bounds that torch's clipping establishes, rounding included.

    clip_grad_value_(parameters, c)    g' = clamp(g, -f32(c), f32(c)):     |g'| <= f32(c), attained
    clip_grad_norm_(parameters, c)     N  = norm of the norms of the gradients
                                       g' = g * min(f32(c) * (1 / (N + 1e-6)), 1):
                                                                           |g'| <= c*(1 + 2**-20) + 2**-22

Both are read from `torch/nn/utils/clip_grad.py` of torch 2.13, foreach and not; every operation there is rounded to
binary32.  The clipped norm can be above `c`, and so can one element.

Why the second holds for each element, whatever the number of elements and the order in which a kernel adds, with
`u = 2**-24` and `|g| >= 2**-60`:

 1. The norm of one element is its magnitude, exactly.  Else: a rounded sum of terms that are not negative is at least
    each of them, in any order and with any number of accumulators: rounding is monotone, so
    `RN(a + b) >= RN(max(a, b)) = max(a, b)`.  The term is `RN(g*g) >= g*g*(1-u)`; where it is fused into the sum, or
    the sum is wider, it is no less.
 2. Each root is within one unit in the last place, `(1 - 2u)` of its own; there are two, one of a tensor's norm and one
    of all: `N >= |g| * (1 - 5u)`.  For the 1-norm and the maximum there is neither square nor root: `N >= |g|`.
 3. `d = RN(N + 1e-6) >= N`.  The coefficient is `f32(c)`, times `RN(1/d)`, rounded: at most `c/d * (1+u)**3`, with
    `1+4u` for one factor where `1/d` is subnormal; and where the coefficient itself is, `2**-150` more.  The smaller of
    it and 1 is no more.
 4. `|g'|` is `|g| <= N/(1-5u)` times that, rounded: at most `c * (1+u)**3 * (1+4u) / (1-5u) < c * (1 + 2**-20)`, and
    `2**128 * 2**-150` more.  (That last term counts for gradients near the end of binary32's range, where a norm of
    one element, the 1-norm and the maximum do not overflow.)

Smaller gradients, whose squares may underflow, end below `2**-39 * c`.  Where the norm overflows the coefficient is 0.
A gradient with a NaN or an infinity makes every element NaN or 0 in this step; no bound is about a NaN.

Claimed: after clipping, every element that is finite is within the bound, on any device whose binary32 operations are
rounded to nearest, with subnormals, and whose square root is within one unit in the last place.  Not covered: gradients
in bfloat16 or float16; norms of sharded gradients, which take one more power and root; other norms than those named,
which need a power function of no known accuracy.
"""

from __future__ import annotations

import math
from fractions import Fraction

from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import round_to_binary32, round_up

UNIT = Fraction(1, 1 << 24)  #: `u`, the largest relative error of a binary32 operation
#: What the bound of a clipped norm has on top, relatively (item 4 above is some 12 units) and absolutely.
SLACK, FLOOR = Fraction(1, 1 << 20), Fraction(1, 1 << 22)
#: Norms of which something is known.
NORM_TYPES = (1.0, 2.0, math.inf)
#: Below, `f32(c)` may be subnormal; above, it or the bound may overflow.
SMALLEST, LARGEST = 2.0**-100, 2.0**127
_SMALLEST_SUBNORMAL = Fraction(1, 1 << 149)


def bound_of_clipped_value(clip_value: float) -> float:
    """`G` after `torch.nn.utils.clip_grad_value_(parameters, clip_value)`, exactly: the binary32 next to it.

    Args:
        clip_value: as torch takes it; positive.

    Raises:
        InvalidClaimError: it is not positive and finite in binary32.
    """
    bound = round_to_binary32(clip_value)
    if not 0 < bound < math.inf:
        raise InvalidClaimError(f"clip-value is {clip_value!r}: expected a positive number that binary32 can hold")
    return bound


def bound_of_clipped_norm(max_norm: float, norm_type: float = 2.0) -> float:
    """`G` after `torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)` of float32 gradients.

    Args:
        max_norm: as torch takes it, in units of the gradient.
        norm_type: 1, 2 or infinity.

    Raises:
        InvalidClaimError: it is not within `SMALLEST` and `LARGEST`.
        UnsupportedError: another norm.
    """
    if float(norm_type) not in NORM_TYPES:
        raise UnsupportedError(f"norm-type is {norm_type!r}: a bound is known for 1, 2 and inf")
    if not SMALLEST <= max_norm <= LARGEST:
        raise InvalidClaimError(f"clip-norm is {max_norm!r}: expected a number from {SMALLEST:.2g} to {LARGEST:.2g}")
    return round_up(Fraction(max_norm) * (1 + SLACK) + FLOOR)


def bound_with_l2_decay(bound: float, weight_decay: float, largest_parameter: float) -> float:
    """`G` of what enters the moments where L2 decay adds `weight_decay * parameter` to the gradient, as `Adam` does.

    Args:
        bound: of the gradient before that; may be infinite.
        weight_decay: of the param_group.
        largest_parameter: the largest magnitude of a parameter when the first update is made; float32 parameters.

    Raises:
        InvalidClaimError: one is negative or a NaN.
    """
    given = (bound, weight_decay, largest_parameter)
    if not all(value >= 0 for value in given):
        raise InvalidClaimError(f"bound, weight decay and largest parameter are {given}: expected no negative number")
    if not all(math.isfinite(value) for value in given):
        return math.inf
    # The decay's own binary32, the product and the sum are rounded, or the last two at once.
    decayed = Fraction(weight_decay) * Fraction(largest_parameter) * (1 + UNIT) ** 2
    whole = (Fraction(bound) + decayed + 2 * _SMALLEST_SUBNORMAL) * (1 + UNIT) + _SMALLEST_SUBNORMAL
    return round_up(whole)
