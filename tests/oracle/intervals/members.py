"""Both numbers, and intervals with a member that the result of an operation must hold."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import flint
from hypothesis import strategies as st

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.oracle.intervals import (
    FractionBinary32,
    balls,
    mpf,
)
from guarded_moments.oracle.intervals.protocol import Intervals
from guarded_moments.reference.floats import bits_of, from_bits

EXACT = FractionBinary32()
MPMATH: Intervals[mpf.Interval] = mpf
ARB: Intervals[flint.arb] = balls
FINITE = binary32(finite=True)


class Between(NamedTuple):
    """Two binary32 ends, and a number between."""

    low: float
    high: float
    member: Fraction


@st.composite
def members(draw: st.DrawFn, *, positive: bool = False) -> Between:
    """An interval with binary32 ends, thin or narrow now and then, and one of its members."""
    values = binary32(signs=False, finite=True, zero=False) if positive else FINITE
    low, high = draw(values), draw(values)
    kind = draw(st.sampled_from(["thin", "narrow", "wide"]))
    if kind == "thin":
        high = low
    elif kind == "narrow":  # within a few binades, where a ball still knows the sign
        high = math.copysign(from_bits(min(bits_of(abs(low)) + draw(st.integers(1, 2**25)), 0x7F7FFFFF)), low)
    low, high = sorted((low, high))
    share = draw(st.fractions(0, 1, max_denominator=2**30))
    return Between(low, high, Fraction(low) + share * (Fraction(high) - Fraction(low)))


def ends(interval: Any) -> tuple[Any, Any]:  # noqa: ANN401 - of two types; the ends may be infinite
    """The least and the largest member, exactly."""
    if not isinstance(interval, flint.arb):
        return mpf.to_fraction(interval[0]), mpf.to_fraction(interval[1])
    if not interval.is_finite():
        return -math.inf, math.inf
    middle, radius = (Fraction(int(x.p), int(x.q)) for x in (interval.mid().fmpq(), interval.rad().fmpq()))
    return middle - radius, middle + radius


def holds(interval: Any, x: Fraction) -> bool:  # noqa: ANN401 - of two types
    low, high = ends(interval)
    return bool(low <= x <= high)


def neighbours(root: Fraction) -> list[Fraction]:
    """The binary32 within one unit in the last place of another; zero's root is zero."""
    bits = bits_of(float(root))
    return [Fraction(from_bits(bits + step)) for step in (-1, 0, 1)] if root else [root]
