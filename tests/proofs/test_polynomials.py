"""Polynomials against Python's own rational arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_moments.proofs import Polynomial

RATIONALS = st.fractions(min_value=-100, max_value=100, max_denominator=64)
NAMES = "xyz"
POINTS = st.fixed_dictionaries(dict.fromkeys(NAMES, RATIONALS))


def polynomials() -> st.SearchStrategy[Polynomial]:
    leaves = st.sampled_from(NAMES).map(Polynomial.variable) | RATIONALS.map(Polynomial.constant)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        ),
        max_leaves=8,
    )


@given(polynomials(), polynomials(), POINTS)
def test_arithmetic_is_that_of_the_values(left: Polynomial, right: Polynomial, point: dict[str, Fraction]) -> None:
    assert (left + right).at(point) == left.at(point) + right.at(point)
    assert (left - right).at(point) == left.at(point) - right.at(point)
    assert (left * right).at(point) == left.at(point) * right.at(point)
    assert (-left).at(point) == -left.at(point)


@given(polynomials(), st.integers(0, 5), POINTS)
def test_a_power_is_that_of_the_value(base: Polynomial, exponent: int, point: dict[str, Fraction]) -> None:
    assert (base**exponent).at(point) == base.at(point) ** exponent


@given(polynomials(), polynomials())
def test_equal_functions_are_equal_values(left: Polynomial, right: Polynomial) -> None:
    assert left * right == right * left
    assert (left + right) * (left - right) == left**2 - right**2
    assert hash(left + right) == hash(right + left)


def test_what_cancels_is_gone() -> None:
    x = Polynomial.variable("x")
    assert (x - x).terms == ()
    assert (x - x).constant_value == 0
    assert (x * x - x * x + Polynomial.constant(2)).variables == frozenset()
    assert x.constant_value is None


@pytest.mark.parametrize(
    ("polynomial", "text"),
    [
        (Polynomial(), "0"),
        (Polynomial.constant(Fraction(-1, 2)), "-1/2"),
        (-Polynomial.variable("x"), "-x"),
        (Polynomial.variable("x") ** 2 * Polynomial.variable("y") - Polynomial.constant(3), "-3 + x**2*y"),
    ],
    ids=str,
)
def test_it_prints_as_a_formula(polynomial: Polynomial, text: str) -> None:
    assert str(polynomial) == text


def test_a_negative_power_is_refused() -> None:
    with pytest.raises(ValueError, match="no negative power: -1"):
        Polynomial.variable("x") ** -1


def test_a_missing_coordinate_is_an_error() -> None:
    with pytest.raises(KeyError, match="x"):
        Polynomial.variable("x").at({"y": Fraction(1)})
