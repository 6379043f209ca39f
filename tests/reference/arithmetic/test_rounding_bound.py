"""Rounding bounds hold for what half a word really computes, where products underflow and quotients overflow."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from guarded_moments.reference.arithmetic.rounding_bound import NotBoundedError, RoundingBound, RoundingBounds
from guarded_moments.reference.floats import FloatFormat, square_root_down, square_root_up

BINARY16 = FloatFormat(precision=11, largest_exponent=15)
T = 1 - BINARY16.unit_roundoff
#: A root is known to a relative `2**-95`.
NEARLY = 1 + Fraction(1, 2**90)


class Value(NamedTuple):
    """A formula's value in every reading."""

    bound: RoundingBound
    computed: np.float16
    low: Fraction  #: the exact value is at least this
    high: Fraction  #: and at most this
    text: str


def rounded(value: Fraction) -> np.float16:
    """The nearest binary16, and infinity where the format has none."""
    with np.errstate(over="ignore"):
        return np.float16(float(value))


def held(value: float) -> float:
    return float(rounded(Fraction(value)))


OPS = RoundingBounds(BINARY16, held)


@st.composite
def inputs(draw: st.DrawFn) -> Value:
    """A number of the format from a range of its numbers."""
    bits = sorted(draw(st.lists(st.integers(1, 0x7BFF), min_size=3, max_size=3)))
    low, value, high = (np.array(bits, dtype=np.uint16).view(np.float16)).tolist()
    zero = draw(st.booleans())
    value = 0.0 if zero and draw(st.booleans()) else value
    exact = Fraction(value)
    return Value(RoundingBound(Fraction(low), Fraction(high), zero=zero), np.float16(value), exact, exact, f"{value}")


@st.composite
def constants(draw: st.DrawFn) -> Value:
    value = draw(st.one_of(st.just(0.0), st.floats(2.0**-40, 60000.0)))
    return Value(OPS.held(value), np.float16(held(value)), Fraction(value), Fraction(value), f"held {value}")


def exactly(name: str, *operands: Value) -> tuple[Fraction, Fraction]:
    a, b = operands[0], operands[-1]
    if name == "sqrt":
        return square_root_down(a.low), square_root_up(a.high)
    if name == "distance":
        return abs(a.low - b.low), abs(a.low - b.low)
    if name == "div":
        return a.low / b.high, a.high / b.low
    pairs: dict[str, Callable[[Any, Any], Any]] = {
        "add": lambda x, y: x + y,
        "mul": lambda x, y: x * y,
        "minimum": min,
        "maximum": max,
    }
    return pairs[name](a.low, b.low), pairs[name](a.high, b.high)


COMPUTE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "distance": lambda a, b: np.abs(a - b),
}


def applied(ops: RoundingBounds, name: str, *operands: Value) -> Value:
    """An operation in every reading; `NotBoundedError` where there is no bound."""
    bound = getattr(ops, name)(*(operand.bound for operand in operands))
    with np.errstate(all="ignore"):
        computed = COMPUTE[name](*(operand.computed for operand in operands))
    text = f"{name}({', '.join(operand.text for operand in operands)})"
    return Value(bound, computed, *exactly(name, *operands), text)


@st.composite
def formulas(draw: st.DrawFn, ops: RoundingBounds, depth: int = 4) -> Value:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        leaf = draw(st.sampled_from(["input", "constant", "distance"]))
        if leaf == "distance":
            return applied(ops, "distance", draw(inputs()), draw(inputs()))
        return draw(inputs() if leaf == "input" else constants())
    name = draw(st.sampled_from(["add", "mul", "mul", "div", "sqrt", "minimum", "maximum"]))
    count = 1 if name == "sqrt" else 2
    operands = [draw(formulas(ops, depth - 1)) for _ in range(count)]
    try:
        return applied(ops, name, *operands)
    except NotBoundedError:
        return operands[0]


def outside(value: Value) -> str:
    """What of the bound does not hold; nothing if it does."""
    k, a = value.bound.roundings, value.bound.absolute
    infinite = math.isinf(float(value.computed))
    computed = Fraction(0 if infinite else float(value.computed))
    holds = {
        "the range begins above it": value.high == 0 or value.bound.low <= value.high * NEARLY,
        "the range ends below it": value.low <= value.bound.high * NEARLY,
        "it is zero": value.high > 0 or value.bound.zero,
        "it overflows": not infinite or (value.bound.overflows and value.high > BINARY16.largest / 2),
        "it is too small": infinite or T**k * value.low - a <= computed * NEARLY,
        "it is too large": infinite or computed <= value.high / T**k * NEARLY + a,
    }
    wrong = [what for what, right in holds.items() if not right]
    return f"{value.text} = {float(value.computed)}: {', '.join(wrong)}" if wrong else ""


@given(formulas(OPS))
def test_bounds_hold(value: Value) -> None:
    assert not outside(value)


def test_what_no_rule_covers_is_refused() -> None:
    one, tiny = (RoundingBound(Fraction(x), Fraction(x)) for x in (1.0, float(BINARY16.smallest_subnormal)))
    zero, wrong = one._replace(zero=True), OPS.mul(tiny, tiny)
    assert wrong.absolute == BINARY16.half_smallest_subnormal
    huge = OPS.div(one, tiny)
    assert huge.overflows
    assert not OPS.minimum(huge, one).overflows
    refused: tuple[Callable[[], object], ...] = (
        lambda: OPS.div(one, zero),
        lambda: OPS.div(one, wrong),
        lambda: OPS.sqrt(wrong),
        lambda: OPS.mul(huge, one),
        lambda: OPS.held(1e6),
    )
    for call in refused:
        with pytest.raises(NotBoundedError):
            call()


def _without_underflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundingBounds, "_underflow", lambda *_: Fraction(0))


def _without_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundingBounds, "_result", lambda _, result, *__: result)


def _without_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute error that a product does not scale."""
    monkeypatch.setattr(RoundingBounds, "_largest", lambda *_: Fraction(1))


@pytest.mark.parametrize("slip", [_without_underflow, _without_overflow, _without_their_products])
def test_a_slip_in_a_rule_is_seen(slip: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    slip(monkeypatch)
    found = find(
        formulas(OPS),
        lambda value: bool(outside(value)),
        settings=settings(max_examples=20_000, phases=[Phase.generate], database=None, derandomize=True),
    )
    assert outside(found)
