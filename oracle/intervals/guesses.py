"""Where the worst gradient may be: the step in plain binary64, at a few dozen gradients.

Nothing is claimed and nothing rests on it: a poor guess makes the enclosure slower or wider, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import final

from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.floats import bits_of, from_bits
from guarded_moments.reference.op_models import Correction, OpModel

#: End points of the first cells, in units of the scale; further ones follow by `_FAR` up to the bound.
_NEAR = (0.0, 0.5, 1.0, 2.0, 5.0, 15.0)
_FAR = 16.0
#: Gradients tried in each cell, and ternary steps around the best of them.
_TRIES, _REFINEMENTS = 6, 24

#: Instead of zero, where the scale would be infinite or zero.
_SMALL = 1e-30

#: The deviation at a gradient.
Guess = Callable[[float], float]


@final
class Binary64:
    """Python's own floats."""

    def constant(self, value: float) -> float:
        """The float itself."""
        return value

    def add(self, a: float, b: float) -> float:
        """`a + b`."""
        return a + b

    def sub(self, a: float, b: float) -> float:
        """`a - b`."""
        return a - b

    def mul(self, a: float, b: float) -> float:
        """`a * b`."""
        return a * b

    product = mul

    def div(self, a: float, b: float) -> float:
        """`a / b`; zero where `b` is, so that no guess fails."""
        return a / b if b else 0.0

    def fma(self, a: float, b: float, c: float) -> float:
        """`a * b + c`, rounded twice."""
        return a * b + c

    def sqrt(self, a: float) -> float:
        """The root."""
        return math.sqrt(a)

    platform_sqrt = sqrt

    def negate(self, a: float) -> float:
        """`-a`."""
        return -a

    def select_less(self, a: float, b: float, if_less: float, otherwise: float) -> float:
        """`if_less` where `a < b`, else `otherwise`."""
        return if_less if a < b else otherwise

    def select_nan(self, a: float, if_nan: float, otherwise: float) -> float:
        """`if_nan` where `a` is NaN."""
        return if_nan if math.isnan(a) else otherwise


def scale_of(model: OpModel, k: Scalars[float], v: float, v_hat: float) -> float:
    """The gradient magnitude at which `c*g*g` starts to bend the denominator."""
    root = max(abs(k.root), _SMALL)
    eps = abs(k.eps) * (root if model.correction is Correction.DIVIDE else 1 / root)
    return (math.sqrt(k.beta2 * min(v, v_hat)) + max(eps, _SMALL)) / math.sqrt(max(k.c, _SMALL))


def first_ends(scale: float, bound: float) -> list[float]:
    """Ends of the first cells of gradient magnitudes: increasing binary32 from zero to `bound`."""
    ends = [end * scale for end in _NEAR]
    while ends[-1] < bound:
        ends.append(ends[-1] * _FAR)
    return sorted({0.0, bound} | {_nearest(end) for end in ends if end < bound})


def middle(low: float, high: float, scale: float) -> float:
    """A binary32 between, half way on a scale that is linear below `scale` and logarithmic above."""
    value = _nearest(math.sqrt((scale + low) * (scale + high)) - scale)
    return value if low < value < high else _nearest(0.5 * low + 0.5 * high)


def real_deviation(
    model: OpModel, options: StepOptions, k: Scalars[float], m: float, v: float, m_hat: float, v_hat: float
) -> Guess:
    """`|U_hat - U|` as binary64 has it."""
    update = make_update(Binary64(), model, options)
    return lambda g: abs(update(m_hat, v_hat, g, k) - update(m, v, g, k))


def likely_worst(guess: Guess, ends: list[float], scale: float) -> float:
    """A binary32 gradient within the ends, of either sign, at which the guess is about largest."""
    tries = [0.0, ends[-1]]
    for low, high in pairwise(ends):
        tries += [low + (high - low) * step / _TRIES for step in range(1, _TRIES + 1)]
    best = max((sign * g for g in tries for sign in (1.0, -1.0)), key=guess)
    sign, bound = math.copysign(1.0, best), ends[-1]
    width = 0.3 * (scale + abs(best))
    for _ in range(_REFINEMENTS):
        candidates = (best - sign * width, best, best + sign * width)
        best = max((sign * min(max(sign * g, 0.0), bound) for g in candidates), key=guess)
        width *= 0.7
    best = _nearest(best)
    return best if abs(best) <= bound else math.copysign(bound, best)


def _nearest(value: float) -> float:
    return from_bits(bits_of(value))
