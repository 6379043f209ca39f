"""The op model on fractions rounds as the tests' own arithmetic does."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.oracle.intervals.members import EXACT, FINITE
from tests.reference.arithmetic.exact_binary32 import OPERATIONS, round_to_nearest_even
from tests.strategies import fractions

from guarded_moments.oracle.intervals import (
    UnboundedError,
)
from guarded_moments.oracle.intervals.exact import round_to_nearest
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, from_bits


@given(fractions(170), st.integers(-1, 1))
def test_fractions_round_as_the_tests_own_arithmetic_does(x: Fraction, off: int) -> None:
    spacing = BINARY32.smallest_subnormal
    halfway = (x // spacing) * spacing + spacing / 2 + off * spacing / 2**40  # of two subnormals, or beside it
    for value in (x, halfway):
        try:
            assert float(round_to_nearest(value)) == from_bits(round_to_nearest_even(value))
        except UnboundedError:
            assert abs(value) > BINARY32.largest


@pytest.mark.parametrize(
    ("name", "operands"), [("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("fma", 3), ("sqrt", 1)]
)
@given(values=st.tuples(FINITE, FINITE, FINITE))
def test_operations_on_fractions_are_the_tests_own(
    name: str, operands: int, values: tuple[float, float, float]
) -> None:
    chosen = [abs(x) for x in values[:operands]] if name == "sqrt" else list(values[:operands])
    if name == "div" and chosen[1] == 0:
        reject()
    expected = OPERATIONS[name](*chosen)
    try:
        result = float(getattr(EXACT, name)(*map(Fraction, chosen)))
    except UnboundedError:
        assert math.isinf(from_bits(expected))
    else:
        assert result == from_bits(expected)  # zeros of both signs are one


def test_the_platforms_root_has_no_exact_value() -> None:
    with pytest.raises(UnsupportedError, match="black box"):
        EXACT.platform_sqrt(Fraction(2))
