"""The claim language against Python's own reading of the same text, in rational arithmetic."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_moments.proofs import Atom, ClaimError, Polynomial, Relation, parse_claim

NAMES = ("x", "y", "s_hat")
RATIONALS = st.fractions(min_value=-8, max_value=8, max_denominator=8)
POINTS = st.fixed_dictionaries(dict.fromkeys(NAMES, RATIONALS))
NUMBERS = st.sampled_from(("0", "1", "3", "2.5", "1.01", "0.1", "1e-3", "4.", "16777216"))
OPERATORS = st.sampled_from(("<=", "<", "==", ">=", ">"))


def expressions() -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join),
            st.tuples(inner, st.sampled_from(("/2", "/(1 + 3)", "/2**5", "**2", "**3"))).map("".join),
            inner.map("({})".format),
            inner.map("-{}".format),
        )

    return st.recursive(st.sampled_from(NAMES) | NUMBERS, extend, max_leaves=6)


def comparisons() -> st.SearchStrategy[str]:
    two = st.tuples(expressions(), OPERATORS, expressions()).map(" ".join)
    three = st.tuples(expressions(), OPERATORS, expressions(), OPERATORS, expressions()).map(" ".join)
    magnitude = st.tuples(expressions().map("abs({})".format), st.sampled_from(("<=", "<")), expressions()).map(
        " ".join
    )
    return two | three | magnitude


def python_says(text: str, point: dict[str, Fraction]) -> object:
    """The value of a text in Python, every literal read as the rational that it spells."""
    exact = re.sub(r"\d+(\.\d*)?(e-?\d+)?", r"Fraction('\g<0>')", text)
    return eval(exact, {"Fraction": Fraction, "abs": abs}, dict(point))  # noqa: S307 - our own text


@given(expressions(), POINTS)
def test_an_expression_has_pythons_value(text: str, point: dict[str, Fraction]) -> None:
    (atom,) = parse_claim(f"{text} >= 0", NAMES)
    assert atom.polynomial.at(point) == python_says(text, point)


@given(st.lists(comparisons(), min_size=1, max_size=3).map(" and ".join), POINTS)
def test_a_claim_holds_where_python_says_so(text: str, point: dict[str, Fraction]) -> None:
    assert all(atom.holds(point) for atom in parse_claim(text, NAMES)) == python_says(text, point)


@given(st.lists(comparisons(), min_size=1, max_size=3).map(" and ".join))
def test_a_printed_atom_reads_back(text: str) -> None:
    for atom in parse_claim(text, NAMES):
        assert parse_claim(str(atom), NAMES) == (atom,)


def test_a_decimal_is_the_rational_it_spells() -> None:
    (atom,) = parse_claim("1.01*x == 0", "x")
    assert atom.polynomial.terms == (((("x", 1),), Fraction(101, 100)),)
    assert Fraction(1.01) != Fraction(101, 100)


def test_numbers_have_negative_powers() -> None:
    (atom,) = parse_claim("2**-24 == u", "u")
    assert atom.holds({"u": Fraction(1, 2**24)})


def test_a_chain_and_a_magnitude_are_several_atoms() -> None:
    x, one = Polynomial.variable("x"), Polynomial.constant(1)
    assert parse_claim("0 <= x < 1", "x") == (Atom(x, Relation.AT_LEAST), Atom(one - x, Relation.ABOVE))
    assert parse_claim("abs(x) <= 1", "x") == (
        Atom(one - x, Relation.AT_LEAST),
        Atom(one + x, Relation.AT_LEAST),
    )


@pytest.mark.parametrize(
    ("text", "reason", "pointed_at"),
    [
        ("x + 1", "expected a comparison", "x + 1"),
        ("x", "expected a comparison", "x"),
        ("x <= 1 or x >= 2", "expected a comparison", "x <= 1 or x >= 2"),
        ("not x <= 1", "expected a comparison", "not x <= 1"),
        ("x != 1", "comparisons are", "x != 1"),
        ("x in (1, 2)", "not a polynomial", "(1, 2)"),
        ("x + z >= 0", "unknown variable 'z' (known: x, y)", "z"),
        ("1 <= x/y", "by numbers only", "y"),
        ("1 <= x/(2 - 2)", "division by zero", "2 - 2"),
        ("0**-1 <= x", "division by zero", "0"),
        ("x**-1 >= 0", "by numbers only", "x"),
        ("x**0.5 >= 0", "powers are integers", "0.5"),
        ("x**y >= 0", "powers are integers", "y"),
        ("x**257 >= 0", "powers are integers, at most 256", "257"),
        ("x // 2 >= 0", "not a polynomial", "x // 2"),
        ("sqrt(x) >= 0", "not a polynomial", "sqrt(x)"),
        ("1 >= abs(x)", "not a polynomial", "abs(x)"),
        ("abs(x) >= 1", "abs(x) stands only in", "abs(x) >= 1"),
        ("abs(x) <= y <= 1", "abs(x) stands only in", "abs(x) <= y <= 1"),
        ("abs(x, y) <= 1", "not a polynomial", "abs(x, y)"),
        ("x >= True", "not a real number", "True"),
        ("x >= 1j", "not a real number", "1j"),
        ("x >= 'one'", "not a real number", "'one'"),
        ("x >= ", "cannot be read", None),
        ("", "cannot be read", None),
        ("x = 1", "cannot be read", None),
        ("(x >= 1", "cannot be read", None),
        ("x >=\n 1", "one line of ASCII", None),
        ("x ≥ 1", "one line of ASCII", None),
    ],
)
def test_what_is_no_claim_is_refused_where_it_fails(text: str, reason: str, pointed_at: str | None) -> None:
    with pytest.raises(ClaimError) as refused:
        parse_claim(text, ("x", "y"))
    message = str(refused.value)
    assert reason in message
    if pointed_at is not None:
        _, shown, carets = message.splitlines()
        start = carets.index("^")
        assert shown[start : start + carets.count("^")] == pointed_at, message
