"""Operations of both numbers enclose the results of members, as fractions have them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import flint
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle.intervals.members import ARB, Between, ends, holds, members, neighbours

from guarded_moments.oracle.intervals import (
    UnboundedError,
)
from guarded_moments.oracle.intervals.exact import round_to_nearest
from guarded_moments.oracle.intervals.protocol import Intervals
from guarded_moments.oracle.intervals.rounding import Rounding
from guarded_moments.reference.floats import BINARY32


@given(members(), members())
def test_interval_operations_enclose_the_results_of_members(intervals: Intervals[Any], a: Between, b: Between) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    x, y = a.member, b.member
    assert holds(one, x)
    assert holds(intervals.thin(a.low), Fraction(a.low))
    assert holds(intervals.add(one, other), x + y)
    assert holds(intervals.sub(one, other), x - y)
    assert holds(intervals.mul(one, other), x * y)
    assert holds(intervals.negate(one), -x)
    assert holds(intervals.intersect(one, intervals.add(one, intervals.sub(other, other))), x)
    least, most = intervals.magnitudes(one)
    assert 0 <= least <= abs(x) <= most
    # Ends as long as they get: the rounded results of an operation are operands of the next.
    long = intervals.mul(one, other)
    assert holds(intervals.add(long, one), x * y + x)
    assert holds(intervals.mul(long, intervals.sub(one, other)), x * y * (x - y))


@given(members(), members())
def test_comparisons_are_true_only_where_they_hold_of_all_members(
    intervals: Intervals[Any], a: Between, b: Between
) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    assert not intervals.is_less(one, other) or a.high < b.low
    assert not intervals.is_at_most(one, other) or a.high <= b.low
    assert not intervals.is_positive(one) or a.low > 0
    assert not intervals.is_negative(one) or a.high < 0
    low, high = intervals.thin(a.low), intervals.thin(a.high)  # of single numbers they are also true
    assert intervals.is_less(low, high) == (a.low < a.high)
    assert intervals.is_at_most(high, low) == (a.high <= a.low)
    assert (intervals.is_positive(low), intervals.is_negative(low)) == (a.low > 0, a.low < 0)


@given(members(), members(positive=True))
def test_interval_quotients_and_roots_enclose_the_results_of_members(
    intervals: Intervals[Any], a: Between, b: Between
) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    least, most = ends(intervals.sqrt(other))
    assert max(least, 0) ** 2 <= b.member <= most**2
    with pytest.raises(UnboundedError):
        intervals.div(one, intervals.negate(other))
    if intervals.is_positive(other):
        assert holds(intervals.div(one, other), a.member / b.member)
    else:  # a ball has 30 bits for its radius, and around ends this far apart it reaches below zero
        assert intervals is ARB
        assert b.high > 2**25 * b.low


@given(members(positive=True), st.fractions(0, 1, max_denominator=2**30))
def test_roots_know_that_nothing_is_negative(intervals: Intervals[Any], a: Between, share: Fraction) -> None:
    least, most = ends(intervals.sqrt(intervals.from_ends(0.0, a.high)))
    assert max(least, 0) == 0
    assert most**2 >= Fraction(a.high) >= share * Fraction(a.high)


@pytest.mark.parametrize("kind", list(Rounding))
@given(members(), st.integers(0, 300))
def test_rounding_encloses_the_rounded_members(
    intervals: Intervals[Any], kind: Rounding, a: Between, halvings: int
) -> None:
    interval, x = intervals.from_ends(a.low, a.high), a.member
    if kind is Rounding.PRODUCT:  # also below the smallest binary32
        interval, x = intervals.mul(interval, intervals.thin(2.0**-halvings)), x / 2**halvings
    else:  # a sum of binary32 values is a multiple of the smallest, and a root is not subnormal at all
        x = round(x / BINARY32.smallest_subnormal) * BINARY32.smallest_subnormal
    try:
        result = intervals.rounded(interval, kind)
    except UnboundedError:  # the ball of everything up to the largest number reaches beyond it
        assert intervals is ARB
        assert max(abs(a.low), abs(a.high)) > 0.999 * float(BINARY32.largest)
        return
    if kind is Rounding.PLATFORM_ROOT and x and not 2.0**-75 <= abs(x) <= 2.0**64:
        return  # no binary32 has such a root
    zero = intervals.thin(0.0)
    least, most = intervals.thin(a.low), intervals.thin(a.high)
    for rounded in neighbours(round_to_nearest(x)) if kind is Rounding.PLATFORM_ROOT else [round_to_nearest(x)]:
        assert holds(result, rounded)
        assert holds(intervals.with_errors(zero, interval, zero, kind), rounded - x)
        assert holds(intervals.with_errors(least, zero, interval, kind), Fraction(a.low) + rounded - x)
        assert holds(intervals.with_errors(most, interval, interval, kind), Fraction(a.high) + 2 * (rounded - x))


def test_beyond_the_largest_binary32_nothing_is_rounded(intervals: Intervals[Any]) -> None:
    largest = float(BINARY32.largest)
    for kind in Rounding:
        assert holds(intervals.rounded(intervals.thin(-largest), kind), -BINARY32.largest)
        for beyond in (math.nextafter(largest, math.inf), -(2.0**128), 1e300):
            with pytest.raises(UnboundedError):
                intervals.rounded(intervals.thin(beyond), kind)


@pytest.mark.parametrize(
    "nothing", [flint.arb.nan(), flint.arb.pos_inf(), flint.arb(0, math.inf)], ids=["nan", "infinity", "all"]
)
def test_a_ball_that_says_nothing_bounds_nothing(nothing: flint.arb) -> None:
    assert ARB.magnitudes(nothing) == (0.0, math.inf)
    with pytest.raises(UnboundedError):
        ARB.rounded(nothing, Rounding.SUM)
    with pytest.raises(UnboundedError):
        ARB.div(ARB.thin(1.0), ARB.sub(nothing, nothing))


@given(members(), members(), st.integers(2, 64))
def test_balls_enclose_at_whatever_precision_someone_has_set(a: Between, b: Between, precision: int) -> None:
    with flint.ctx.workprec(precision):
        one, other = ARB.from_ends(a.low, a.high), ARB.from_ends(b.low, b.high)
        results = [ARB.thin(a.low), ARB.mul(one, other), ARB.add(one, other)]
        least, most = ARB.magnitudes(one)
    exact = [Fraction(a.low), a.member * b.member, a.member + b.member]
    assert all(map(holds, results, exact))
    assert least <= abs(a.member) <= most
