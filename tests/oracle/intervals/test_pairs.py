"""Operations on pairs of trajectories enclose both, and what connects them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.oracle.intervals.members import EXACT, FINITE, holds, neighbours

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.oracle.intervals import (
    Pair,
    PairArithmetic,
    UnboundedError,
)
from guarded_moments.oracle.intervals.pairs import shared
from guarded_moments.oracle.intervals.protocol import Intervals
from guarded_moments.reference.floats import bits_of, from_bits


class Members(NamedTuple):
    """What a pair is built from, and a native and a recovered member of it."""

    native_ends: tuple[float, float]
    recovered_ends: tuple[float, float]
    native: Fraction
    recovered: Fraction
    are_one: bool = False
    further: tuple[float, float] = (0.0, 0.0)  #: how much wider the difference is than the two members' own

    def pair(self, intervals: Intervals[Any]) -> Pair[Any]:
        """A pair of such intervals."""
        native, recovered = intervals.from_ends(*self.native_ends), intervals.from_ends(*self.recovered_ends)
        if self.are_one:
            return shared(native)
        difference = intervals.sub(intervals.thin(float(self.recovered)), intervals.thin(float(self.native)))
        if self.further != (0.0, 0.0):
            difference = intervals.add(difference, intervals.from_ends(*self.further))
        return Pair(native, recovered, difference)


@st.composite
def pairs(draw: st.DrawFn, least: float = -math.inf) -> Members:
    """Pairs of values of at least `least`: thin, shared by both trajectories, or wide."""
    values = FINITE if least < 0 else binary32(signs=False, finite=True, zero=least == 0)
    native = draw(values)
    neighbour = from_bits(min(bits_of(native) ^ draw(st.integers(0, 7)), bits_of(math.copysign(2.0**127, native))))
    recovered = draw(st.one_of(values, st.just(neighbour if abs(neighbour) >= least else native)))

    def around(member: float) -> tuple[float, float]:
        low, _, high = sorted((member, draw(values), draw(values)))
        return min(low, member), max(high, member)

    one, other = Fraction(native), Fraction(recovered)
    kind = draw(st.sampled_from(["thin", "shared", "wide"]))
    if kind == "thin":
        return Members((native, native), (recovered, recovered), one, other, native == recovered)
    if kind == "shared":
        both = around(native)
        return Members(both, both, one, one, are_one=True)
    further = draw(FINITE) if draw(st.booleans()) else 0.0
    return Members(around(native), around(recovered), one, other, further=(min(further, 0.0), max(further, 0.0)))


def assert_encloses(pair: Pair[Any], native: Fraction, recovered: Fraction) -> None:
    assert holds(pair.native, native)
    assert holds(pair.recovered, recovered)
    if pair.difference is None:
        assert native == recovered
    else:
        assert holds(pair.difference, recovered - native)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "product"])
@given(operands=st.tuples(pairs(), pairs(), pairs()))
def test_sums_and_products_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any],
    pair_operations: PairArithmetic[Any],
    name: str,
    operands: tuple[Members, Members, Members],
) -> None:
    chosen = operands if name == "fma" else operands[:2]
    try:
        result = getattr(pair_operations, name)(*(operand.pair(intervals) for operand in chosen))
    except UnboundedError:
        reject()
    exact = getattr(EXACT, name)
    native, recovered = exact(*(x.native for x in chosen)), exact(*(x.recovered for x in chosen))
    assert_encloses(result, native, recovered)


@given(pairs(), pairs())
def test_a_fused_product_knows_its_own_factor(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members
) -> None:
    try:
        factor = b.pair(intervals)
        result = pair_operations.fma(a.pair(intervals), factor, factor)
    except UnboundedError:
        reject()
    native, recovered = EXACT.fma(a.native, b.native, b.native), EXACT.fma(a.recovered, b.recovered, b.recovered)
    assert_encloses(result, native, recovered)


@given(pairs(), pairs(least=2.0**-149))
def test_quotients_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members
) -> None:
    try:
        result = pair_operations.div(a.pair(intervals), b.pair(intervals))
        negated = pair_operations.div(a.pair(intervals), pair_operations.negate(b.pair(intervals)))
    except UnboundedError:
        reject()
    native, recovered = EXACT.div(a.native, b.native), EXACT.div(a.recovered, b.recovered)
    assert_encloses(result, native, recovered)
    assert_encloses(negated, -native, -recovered)


@given(pairs(least=0.0))
def test_roots_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members
) -> None:
    native, recovered = EXACT.sqrt(a.native), EXACT.sqrt(a.recovered)
    assert_encloses(pair_operations.sqrt(a.pair(intervals)), native, recovered)
    result = pair_operations.platform_sqrt(a.pair(intervals))
    for first, second in product(neighbours(native), neighbours(recovered)):
        if a.native != a.recovered or first == second:
            assert_encloses(result, first, second)


@given(pairs(), pairs(), pairs(), pairs())
def test_exact_operations_of_pairs(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members, x: Members, y: Members
) -> None:
    one, other, if_less, otherwise = (operand.pair(intervals) for operand in (a, b, x, y))
    assert_encloses(pair_operations.negate(one), -a.native, -a.recovered)
    assert pair_operations.select_nan(one, if_less, otherwise) is otherwise
    try:
        chosen = pair_operations.select_less(one, other, if_less, otherwise)
    except UnboundedError:
        return
    assert (a.native < b.native) == (chosen is if_less)
    assert (a.recovered < b.recovered) == (chosen is if_less)
