"""That no operation of the guard underflows in binary64: its source, run on ranges of exponents.

An element says: the value is zero, or its magnitude is from `2**low` to below `2**high`.  Run from the widest ranges
that binary32 leaves to a state, a gradient and a constant, the sources give the least exponent that any product,
quotient or root can have; sums are exact where they are small.  A result is rounded as `evaluation` says if that is no
less than that of the smallest normal number.

Not covered: an epsilon or a beta beyond `LARGEST_EPS` and `SMALLEST_BETA`; op models whose kernel holds the step size
inside `b` and `eps` (`Update.QUOTIENT`), so that these have other ranges; the bound by slopes and the slack on a cell,
where the product of a width, a slope and a moment may be too small for a double if all three are near the smallest
binary32.  What underflow loses is in each case far below the floor of the slack, but that is not derived.

Claimed: `least_exponent` is at most the exponent of any nonzero result of the operations that can underflow.  Trusted:
the rules below, and `RANGES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, final

from guarded_moments.reference.arithmetic.protocol import SignedArithmetic
from guarded_moments.reference.floats import BINARY32, BINARY64
from guarded_moments.reference.guard.allowance import make_allowance
from guarded_moments.reference.guard.cells import make_end, make_terms, make_upper
from guarded_moments.reference.guard.closed_form import make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.slack import LARGEST_MOMENT, LARGEST_SECOND_MOMENT

#: Of the smallest normal number of binary64, below which a product is not rounded relative to its size.
SMALLEST_NORMAL = int(math.log2(BINARY64.smallest_normal))
_LEAST, _MOST = int(math.log2(BINARY32.smallest_subnormal)), BINARY32.largest_exponent + 1


class Exponents(NamedTuple):
    """Zero, or a magnitude from `2**low` to below `2**high`."""

    low: int
    high: int


#: Betas and epsilons that are covered: far beyond any that trains.
LARGEST_EPS, SMALLEST_BETA = 2.0**64, 2.0**-100
#: A weight is one minus a beta, and `b` the root of one minus a power of a beta (so that `c <= b*b`), formed in
#: binary64 before binary32 holds them; `n` over `eps` is below 1 (`rho`).
_OF_WEIGHT, _OF_BETA = Exponents(-BINARY64.precision, 1), Exponents(int(math.log2(SMALLEST_BETA)), 1)
_OF_B = Exponents(-(BINARY64.precision // 2) - 1, 1)
_OF_EPS, _OF_STEP = Exponents(_LEAST // 2, int(math.log2(LARGEST_EPS))), Exponents(_LEAST, _MOST)
_OF_GAP_CAP = Exponents(_OF_B.low, 1 - _OF_WEIGHT.low // 2)
#: No gradient of a claim is larger: `c*g*g` would overflow.
_OF_G = Exponents(_LEAST, (_MOST - _OF_WEIGHT.low) // 2 + 2)
_ROUNDOFF = -BINARY32.precision
RANGES = GuardConstants(
    w=_OF_WEIGHT,
    complement=_OF_BETA,
    radicand=Exponents(_OF_BETA.low, 1 - 2 * _OF_B.low),
    curvature=Exponents(_OF_WEIGHT.low, 2),
    eps=_OF_EPS,
    step=_OF_STEP,
    gradient_bound=_OF_G,
    gap_cap=_OF_GAP_CAP,
    radicand_cap=Exponents(_OF_GAP_CAP.low - 1, _OF_GAP_CAP.high),
    root_cap=Exponents(_OF_GAP_CAP.low - 3, _OF_GAP_CAP.high),
    eps_cap=Exponents(_OF_GAP_CAP.low - 4 - _OF_EPS.high, _OF_GAP_CAP.high - _OF_EPS.low),
    slack_moment=Exponents(_ROUNDOFF - 1, 64),
    slack_reciprocal=Exponents(_LEAST - 2, 256),
    slack_gradient=Exponents(_ROUNDOFF + _OF_WEIGHT.low + _OF_B.low, 256),
    slack_floor=Exponents(_LEAST - 2, 256),
    threshold=Exponents(_LEAST + _LEAST, _MOST + _MOST),
)
INPUTS = {
    "m": Exponents(_LEAST, int(math.log2(LARGEST_MOMENT)) + 1),
    "v": Exponents(_LEAST, int(math.log2(LARGEST_SECOND_MOMENT)) + 1),
    "g": _OF_G,
}


@final
class ExponentRange:
    """`SignedArithmetic[Exponents]`, and the least exponent of a product, a quotient or a root so far."""

    def __init__(self, *, cancels: bool) -> None:
        """Start with nothing computed; `cancels` says whether sums are of terms of both signs."""
        self.least, self._cancelled = 0, BINARY64.precision - 1 if cancels else 0

    def _seen(self, low: int, high: int) -> Exponents:
        self.least = min(self.least, low)
        return Exponents(low, high)

    def constant(self, value: float) -> Exponents:
        """A number; zero is in every range."""
        return Exponents(0, 1) if value == 0 else Exponents(math.frexp(value)[1] - 1, math.frexp(value)[1])

    def add(self, a: Exponents, b: Exponents) -> Exponents:
        """`a + b`: of terms of both signs, a multiple of the last place of the smallest."""
        return Exponents(min(a.low, b.low) - self._cancelled, max(a.high, b.high) + 1)

    def sub(self, a: Exponents, b: Exponents) -> Exponents:
        """`a - b`, a multiple of the last place of the smaller."""
        if a in INPUTS.values() and b in INPUTS.values():
            return self.distance(a, b)
        return Exponents(min(a.low, b.low) - BINARY64.precision + 1, max(a.high, b.high) + 1)

    def distance(self, a: Exponents, b: Exponents) -> Exponents:
        """`|a - b|` of binary32 inputs: a multiple of the smallest binary32, as both are."""
        return Exponents(max(_LEAST, min(a.low, b.low) - BINARY64.precision + 1), max(a.high, b.high) + 1)

    def mul(self, a: Exponents, b: Exponents) -> Exponents:
        """`a * b`."""
        return self._seen(a.low + b.low, a.high + b.high)

    def div(self, a: Exponents, b: Exponents) -> Exponents:
        """`a / b`."""
        return self._seen(a.low - b.high, a.high - b.low)

    def sqrt(self, a: Exponents) -> Exponents:
        """The square root, off by one unit in the last place or not."""
        return self._seen(a.low // 2 - 1, -(-a.high // 2) + 1)

    def absolute(self, a: Exponents) -> Exponents:
        """`|a|`."""
        return a

    def negate(self, a: Exponents) -> Exponents:
        """`-a`."""
        return a

    def minimum(self, a: Exponents, b: Exponents) -> Exponents:
        """The smaller of both, or the one that is not zero."""
        return Exponents(min(a.low, b.low), max(a.high, b.high))

    def maximum(self, a: Exponents, b: Exponents) -> Exponents:
        """The larger of both, or the one that is not zero."""
        return Exponents(min(a.low, b.low), max(a.high, b.high))


_Source: TypeAlias = Callable[[SignedArithmetic[Exponents]], Exponents]


def _closed_form(op: SignedArithmetic[Exponents]) -> Exponents:
    m, v = INPUTS["m"], INPUTS["v"]
    return make_deviation_bound(op)(RANGES, m, v, m, v)


def _allowance(op: SignedArithmetic[Exponents]) -> Exponents:
    m, v = INPUTS["m"], INPUTS["v"]
    return make_allowance(op)(RANGES, op.constant(1.0), m, v, m, v)


def _cell_by_ends(op: SignedArithmetic[Exponents]) -> Exponents:
    m, v, g = INPUTS["m"], INPUTS["v"], INPUTS["g"]
    terms = make_terms(op)(RANGES, m, v, m, v)
    end = make_end(op)(RANGES, v, v, terms.gap, g)
    return make_upper(op)(RANGES, terms.shift, terms.pull, end, end)


SOURCES: dict[str, _Source] = {
    "guard.closed_form": _closed_form,
    "guard.allowance": _allowance,
    "guard.cells": _cell_by_ends,
}


def least_exponent(source: str) -> int:
    """The least exponent that a product, a quotient or a root of a source may have, unless it is zero."""
    op = ExponentRange(cancels=source == "guard.cells")
    SOURCES[source](op)
    return op.least
