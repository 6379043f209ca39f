"""Rounding counts bound what binary64 really loses, on any formula of non-negative numbers.

A formula is a random tree.  It is evaluated in binary64 by an adversary who, where the rules leave a unit in the last
place open (roots, precomputed constants), takes either neighbour; and exactly, between rationals a relative `2**-95`
apart where it has roots.  So a bound that fails by more than that is seen, and nothing else is.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

import pytest
import torch
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from guarded_moments.reference.arithmetic import RoundingCount, TorchBinary64
from guarded_moments.reference.arithmetic.rounding_count import inflation
from guarded_moments.reference.floats import BINARY64, round_down, square_root_down, square_root_up

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT = RoundingCount()
BINARY64_OPS = TorchBinary64()
T = 1 - BINARY64.unit_roundoff
ENCLOSURE_ERROR = Fraction(1, 2**95)


class Value(NamedTuple):
    """One formula's value in every reading."""

    half_units: int  #: the count
    adversary: float  #: in binary64, roots and constants within a unit in the last place
    torch: float  #: in the guard's own arithmetic
    low: Fraction  #: the exact value is at least this
    high: Fraction  #: and at most this


@dataclass(frozen=True)
class Formula:
    """A tree of operations; leaves have no arguments."""

    name: str
    arguments: tuple["Formula", ...] = ()
    exact: Fraction = Fraction(0)  #: an input, or what a constant stands for
    neighbour: int = 0  #: the adversary's choice

    def __str__(self) -> str:
        if not self.arguments:
            return f"{self.name}({float(self.exact).hex()})"
        nudge = f" nudged {self.neighbour:+}" if self.neighbour else ""
        return f"{self.name}({', '.join(map(str, self.arguments))}){nudge}"


def evaluate(formula: Formula) -> Value:
    """Every reading of the formula."""
    if formula.name == "input":
        value = float(formula.exact)
        return Value(COUNT.exact, value, value, formula.exact, formula.exact)
    if formula.name == "constant":
        value = _within_a_unit(formula.exact, formula.neighbour)
        held = float(BINARY64_OPS.constant(value))
        return Value(COUNT.constant(value), value, held, formula.exact, formula.exact)
    arguments = [evaluate(argument) for argument in formula.arguments]
    counts, adversary, torches, lows, highs = zip(*arguments, strict=True)
    counted = getattr(COUNT, formula.name)(*counts)
    in_torch = getattr(BINARY64_OPS, formula.name)(*(torch.tensor(x, dtype=torch.float64) for x in torches))
    low, high = _EXACT[formula.name](lows, highs)
    computed = _BINARY64[formula.name](adversary)
    if formula.neighbour and computed > 0:
        computed = math.nextafter(computed, math.copysign(math.inf, formula.neighbour))
    return Value(counted, computed, float(in_torch), low, high)


def _within_a_unit(exact: Fraction, neighbour: int) -> float:
    """A binary64 at most one unit in the last place of `exact` away from it: the nearest, or one beside it."""
    nearest = float(exact)
    if neighbour == 0 or exact == 0:
        return nearest
    chosen = math.nextafter(nearest, math.copysign(math.inf, neighbour))
    unit = Fraction(math.ulp(round_down(exact)))
    return chosen if abs(Fraction(chosen) - exact) <= unit else nearest


def _root(lows: Sequence[Fraction], highs: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    return square_root_down(lows[0]), square_root_up(highs[0])


def _monotone(
    operation: Callable[[Fraction, Fraction], Fraction],
) -> Callable[[Sequence[Fraction], Sequence[Fraction]], tuple[Fraction, Fraction]]:
    return lambda lows, highs: (operation(*lows), operation(*highs))


_EXACT: dict[str, Callable[[Sequence[Fraction], Sequence[Fraction]], tuple[Fraction, Fraction]]] = {
    "add": _monotone(lambda a, b: a + b),
    "mul": _monotone(lambda a, b: a * b),
    "div": lambda lows, highs: (lows[0] / highs[1], highs[0] / lows[1]),
    "sqrt": _root,
    "distance": _monotone(lambda a, b: abs(a - b)),  # of inputs only: exact
    "absolute": lambda lows, highs: (lows[0], highs[0]),
    "minimum": _monotone(min),
    "maximum": _monotone(max),
}

_BINARY64: dict[str, Callable[[Sequence[float]], float]] = {
    "add": lambda x: x[0] + x[1],
    "mul": lambda x: x[0] * x[1],
    "div": lambda x: x[0] / x[1],
    "sqrt": lambda x: math.sqrt(x[0]),
    "distance": lambda x: abs(x[0] - x[1]),
    "absolute": lambda x: abs(x[0]),
    "minimum": min,
    "maximum": max,
}

#: Inputs are what binary64 holds exactly.  A dozen of these neither overflow nor underflow it.
inputs = st.builds(
    lambda value: Formula("input", exact=Fraction(value)),
    st.floats(2.0**-20, 2.0**20) | st.floats(2.0**-20, 2.0**20, width=32) | st.just(0.0),
)
neighbours = st.sampled_from((-1, 0, 1))
constants = st.builds(
    lambda exact, exponent, neighbour: Formula("constant", exact=exact * Fraction(2) ** exponent, neighbour=neighbour),
    st.fractions(Fraction(1, 2), 1, max_denominator=2**60),
    st.integers(-20, 20),
    neighbours,
)
distances = st.builds(lambda a, b: Formula("distance", (a, b)), inputs, inputs)
leaves = inputs | constants | distances


def _is_positive(formula: Formula) -> bool:
    return evaluate(formula).low > 0


def _grow(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    pairs = st.sampled_from(("add", "mul", "minimum", "maximum"))
    return st.one_of(
        st.builds(lambda name, a, b: Formula(name, (a, b)), pairs, inner, inner),
        st.builds(lambda a, b: Formula("div", (a, b)), inner, inner.filter(_is_positive)),
        st.builds(lambda a, neighbour: Formula("sqrt", (a,), neighbour=neighbour), inner, neighbours),
        st.builds(lambda a: Formula("absolute", (a,)), inner),
    )


formulas = st.recursive(leaves, _grow, max_leaves=10)


def violations(value: Value, *, slack: int = 0) -> Iterator[str]:
    """The bounds, with `slack` half units less, that certainly fail."""
    factor = T ** (value.half_units - slack)
    for reading, computed in (("adversary", value.adversary), ("torch", value.torch)):
        if factor * value.low > Fraction(computed):
            yield f"{reading}: {computed.hex()} is too small for count {value.half_units}"
        if factor * Fraction(computed) > value.high:
            yield f"{reading}: {computed.hex()} is too large for count {value.half_units}"


@given(formulas)
@settings(max_examples=3 * settings.get_profile(settings.get_current_profile_name()).max_examples)
def test_counts_bound_the_error_of_any_formula(formula: Formula) -> None:
    value = evaluate(formula)
    assert value.high <= value.low * (1 + ENCLOSURE_ERROR), "the exact value must be known far better than the bound"
    assert not list(violations(value)), str(formula)


U = BINARY64.unit_roundoff


def _input(value: Fraction) -> Formula:
    assert Fraction(float(value)) == value, "inputs are exact"
    return Formula("input", exact=value)


#: Nearly half way above a binary64: computed as `1 + below`, the exact sum is `U` more.
def _sum_that_loses_half_a_unit(below: int) -> Formula:
    return Formula("add", (_input(Fraction(1)), _input((below + 1) * U * (1 - Fraction(1, 2**40)))))


def _fold(name: str, formulas: Sequence[Formula]) -> Formula:
    return reduce(lambda a, b: Formula(name, (a, b)), formulas)


#: Formulas whose error is nearly the largest that their operations can have, in half units; none is found by chance.
WORST = {
    "a product of sums": (_fold("mul", [_sum_that_loses_half_a_unit(0)] * 32), 31.9),
    "quotients of sums": (_fold("div", [_input(Fraction(1))] + [_sum_that_loses_half_a_unit(0)] * 32), 31.9),
    "the root of a sum": (Formula("sqrt", (_sum_that_loses_half_a_unit(6),), neighbour=-1), 3.4),
    "the sum of a product": (_fold("add", [_fold("mul", [_sum_that_loses_half_a_unit(0)] * 32), _input(U)]), 31.9),
}


@pytest.mark.parametrize(("formula", "half_units"), WORST.values(), ids=WORST)
def test_counts_bound_the_error_of_the_worst_formulas(formula: Formula, half_units: float) -> None:
    value = evaluate(formula)
    error = max(abs(1 - Fraction(value.adversary) / value.low), abs(1 - Fraction(value.adversary) / value.high)) / U
    assert float(error) > half_units, "this formula is not what it says"
    assert not list(violations(value))


_SINGLE = {
    "constant": constants,
    "sqrt": st.builds(lambda a, neighbour: Formula("sqrt", (a,), neighbour=neighbour), inputs, neighbours),
    "div": st.builds(lambda a, b: Formula("div", (a, b)), inputs, inputs.filter(_is_positive)),
    **{
        name: st.builds(lambda a, b, name=name: Formula(name, (a, b)), inputs, inputs)
        for name in ("add", "mul", "distance")
    },
}


@pytest.mark.parametrize("name", _SINGLE)
def test_one_half_unit_less_would_be_wrong(name: str) -> None:
    """So the bounds are tight for each operation by itself, and the check above can fail."""
    search = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
    found = find(_SINGLE[name], lambda formula: any(violations(evaluate(formula), slack=1)), settings=search)
    assert found.name == name


def test_counts_of_single_operations() -> None:
    assert COUNT.exact == 0
    assert COUNT.constant(0.1) == 2
    assert COUNT.add(2, 5) == 6
    assert COUNT.mul(2, 5) == COUNT.div(2, 5) == 8
    assert (COUNT.sqrt(0), COUNT.sqrt(4), COUNT.sqrt(5)) == (3, 5, 6)
    assert COUNT.distance(0, 0) == 1
    assert COUNT.absolute(4) == 4
    assert COUNT.minimum(2, 5) == COUNT.maximum(2, 5) == 5


@pytest.mark.parametrize(("a", "b"), [(1, 0), (0, 1), (2, 2)])
def test_a_distance_of_rounded_quantities_is_refused(a: int, b: int) -> None:
    with pytest.raises(ValueError, match=rf"counts {a} and {b}"):
        COUNT.distance(a, b)


@pytest.mark.parametrize("count", [0, 1, 2, 57, 1000])
def test_inflation_undoes_the_factor(count: int) -> None:
    assert inflation(count) * T**count == 1
