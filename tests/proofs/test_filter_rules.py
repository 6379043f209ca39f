"""The rules of the binary32 filter are instances of lemmas: what a lemma concludes is what a rule says.

Exactly, on rational numbers: for every rule, operands with errors of their own, at the ends of what they may be.
"""

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction

import pytest

from guarded_moments.proofs import all_lemmas
from guarded_moments.reference.arithmetic.rounding_bound import RoundingBound, RoundingBounds
from guarded_moments.reference.floats import BINARY32

LEMMAS = {lemma.name: lemma for lemma in all_lemmas()}
U = BINARY32.unit_roundoff
T = 1 / (1 - U)
TINY = BINARY32.half_smallest_subnormal
RULES = RoundingBounds(BINARY32, float)

#: Far from underflow and at it, with an absolute error and without.
OPERANDS = (
    RoundingBound(Fraction(1, 3), Fraction(7), 2),
    RoundingBound(Fraction(1, 2**70), Fraction(1, 2**60), 1, Fraction(1, 2**149)),
    RoundingBound(Fraction(1, 2**90), Fraction(2), 3, Fraction(1, 2**100)),
    RoundingBound(Fraction(1, 2**126), Fraction(1, 2**40), 0, Fraction(3, 2**149), zero=True),
    RoundingBound(Fraction(1, 2**60), Fraction(1, 2**50), 1, Fraction(1, 2**59)),  # may be computed as zero
)
PAIRS = list(itertools.product(OPERANDS, repeat=2))


def holds(name: str, values: Mapping[str, Fraction]) -> bool:
    """Whether the lemma's hypotheses hold of the values; then its goal must, which is checked too."""
    lemma = LEMMAS[name]
    if not all(atom.holds(values) for atom in lemma.hypotheses):
        return False
    assert all(atom.holds(values) for atom in lemma.goal), f"{name} is false of {values}"
    return True


def computed(operand: RoundingBound, exact: Fraction) -> Iterator[Fraction]:
    """The least and the largest that may be computed for an exact value."""
    k, a = operand.roundings, operand.absolute
    yield max(Fraction(0), exact / T**k - a)
    yield exact * T**k + a


def concluded(
    rule: RoundingBound, exact: Fraction, s: Fraction, low: Fraction, high: Fraction, error: Fraction
) -> None:
    """Round `s`, which lies between `low` and `high` but for `error`, as far off as may be: the rule says no less."""
    subnormal = s < BINARY32.smallest_normal
    may_lose = rule.low / T**rule.roundings < BINARY32.smallest_normal
    e = TINY if may_lose else Fraction(0)
    for sign in (1, -1):
        shared = {"P": low, "Q": high, "A": error, "s": s, "u": U, "T": T}
        if subnormal and not may_lose:
            assert holds("underflow_of_inexact", {**shared, "e": TINY, "f": s + sign * TINY})
        else:
            assert holds("rounding_of_inexact", {**shared, "e": e, "f": s + sign * (U * s + e)})
    assert exact / T**rule.roundings - rule.absolute <= low / T - T * error - e
    assert T * (high + error) + e <= exact * T**rule.roundings + rule.absolute


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_products(first: RoundingBound, second: RoundingBound) -> None:
    rule = RULES.mul(first, second)
    A, B = (operand.high * T**operand.roundings + operand.absolute for operand in (first, second))
    error = first.absolute * B + second.absolute * A
    for X, Y in itertools.product((first.low, first.high), (second.low, second.high)):
        P1, Q1 = X / T**first.roundings, X * T**first.roundings
        P2, Q2 = Y / T**second.roundings, Y * T**second.roundings
        for x, y in itertools.product(computed(first, X), computed(second, Y)):
            of_first = {"x": x, "P1": P1, "Q1": Q1, "a": first.absolute, "A": A}
            of_second = {"y": y, "P2": P2, "Q2": Q2, "b": second.absolute, "B": B}
            assert holds("product_of_inexact", of_first | of_second)
            concluded(rule, X * Y, x * y, P1 * P2, Q1 * Q2, error)


@pytest.mark.parametrize("first", OPERANDS)
def test_quotients(first: RoundingBound) -> None:
    second = OPERANDS[0]  # a divisor has no absolute error
    rule = RULES.div(first, second)
    L = second.low / T**second.roundings
    for X, Y in itertools.product((first.low, first.high), (second.low, second.high)):
        P1, Q1 = X / T**first.roundings, X * T**first.roundings
        P2, Q2 = Y / T**second.roundings, Y * T**second.roundings
        for x, y in itertools.product(computed(first, X), computed(second, Y)):
            of_first = {"x": x, "P1": P1, "Q1": Q1, "a": first.absolute}
            quotients = {"q": x / y, "l": P1 / Q2, "h": Q1 / P2, "c": first.absolute / L}
            assert holds("quotient_of_inexact", {**of_first, "y": y, "P2": P2, "Q2": Q2, "L": L, **quotients})
            concluded(rule, X / Y, x / y, P1 / Q2, Q1 / P2, first.absolute / L)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_sums(first: RoundingBound, second: RoundingBound) -> None:
    """Of two floats nothing is lost to underflow."""
    rule = RULES.add(first, second)
    error, k = first.absolute + second.absolute, max(first.roundings, second.roundings)
    for X, Y in itertools.product((first.low, first.high), (second.low, second.high)):
        for x, y in itertools.product(computed(first, X), computed(second, Y)):
            s, exact = x + y, X + Y
            shared = {"P": exact / T**k, "Q": exact * T**k, "A": error, "s": s, "u": U, "T": T, "e": Fraction(0)}
            for sign in (1, -1):
                assert holds("rounding_of_inexact", {**shared, "f": s + sign * U * s})
            assert exact / T**rule.roundings - rule.absolute <= exact / T**k / T - T * error
            assert T * (exact * T**k + error) <= exact * T**rule.roundings + rule.absolute
