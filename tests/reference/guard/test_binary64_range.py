"""No operation of the guard leaves the normal range: the rules hold of numbers, the cases are all, and it can fail."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference.guard.cases import Setting, gradients, pairs, settings

from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32
from guarded_moments.reference.guard import binary64_range
from guarded_moments.reference.guard.binary64_range import (
    BAND,
    ZERO,
    Array,
    Cases,
    ExponentRange,
    Exponents,
    OutOfRangeError,
    cases,
    evaluate,
    exponents,
    in_cases,
    require_normal,
)
from guarded_moments.reference.guard.search import largest_gradient
from guarded_moments.reference.op_models import Update

Float64 = np.ndarray[Any, np.dtype[np.float64]]


class Watched:
    """Binary64 beside exponents: every number must be in its range, and none but zero below the normal ones."""

    def __init__(self, order: dict[tuple[int, int], Array]) -> None:
        """As both arithmetics."""
        self.ranges = ExponentRange(order)

    def constant(self, value: float) -> tuple[Float64, Exponents]:
        """A number."""
        return np.array(value), self.ranges.constant(value)

    def finite(self, a: tuple[Float64, Exponents]) -> None:
        """What is shown in the end."""
        self.ranges.finite(a[1])

    def __getattr__(self, name: str) -> object:
        """The operation of both, and the comparison."""
        of_numbers: Any = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
            "absolute": np.abs, "negate": np.negative, "minimum": np.minimum, "maximum": np.maximum,
            "distance": lambda a, b: np.abs(a - b),
        }[name]  # fmt: skip

        def operation(*operands: tuple[Float64, Exponents]) -> tuple[Float64, Exponents]:
            with np.errstate(all="ignore"):
                number = of_numbers(*(operand[0] for operand in operands))
                held = getattr(self.ranges, name)(*(operand[1] for operand in operands))
                size, exponent = np.abs(number), np.log2(np.abs(number))
            inside = (number == 0) & held.zero | (exponent >= held.low) & (exponent <= held.high) & (number != 0)
            inside &= (held.sign == 0) | (number * held.sign >= 0) | (number == 0)
            inside &= np.isclose(np.remainder(number, np.exp2(np.clip(held.grid, -1074, 900))), 0) | (held.grid > 900)
            inside |= held.high >= binary64_range.BEYOND
            if not inside.all():
                at = np.unravel_index(int(np.argmin(inside)), np.shape(inside))
                shown = [np.broadcast_to(x, np.shape(inside))[at] for x in (number, *held)]
                raise AssertionError(f"{name} is {shown[0]!r}, and not in {shown[1:]}")
            if name in {"mul", "div", "sqrt"}:
                assert not ((size > 0) & (size < 2.0**-1022)).any(), name
            return number, held

        return operation


def band_of(values: Float64) -> list[Array]:
    """The range of exponents that a case holds each number in."""
    least = -149
    exponent = np.frexp(values)[1].astype(np.int64) - 1
    low = least + (exponent - least) // BAND * BAND
    return [np.where(values == 0, ZERO[0], low), np.where(values == 0, ZERO[1], low + BAND)]


def columns(v: Float64, v_hat: Float64, high: Float64, low: Float64) -> Array:
    """The cases that states and cells are in, as `in_cases` takes them."""
    order, wide = np.sign(v - v_hat).astype(int), (high > low).astype(int)
    return np.stack([*band_of(v), *band_of(v_hat), order, *band_of(high), *band_of(low), wide])


def some(setting: Setting, rng: np.random.Generator, *, from_zero: bool) -> tuple[Any, ...]:
    """Constants, states and cells of a claim: float64."""
    case = setting.case()
    states = pairs(300, rng)
    g = gradients(case.constants, states, 8).double().abs().sort(dim=0).values.numpy()
    low, high = (g[0] * 0 if from_zero else g[rng.integers(1, 12)]), g[rng.integers(12, len(g))]
    low = low if from_zero else np.maximum(low, 2.0**-149)
    return case.constants, *(moment.double().numpy() for moment in states), low, np.maximum(low, high)


@pytest.mark.parametrize("from_zero", [True, False])
def test_every_number_is_in_its_range_and_no_result_is_subnormal(
    *, from_zero: bool, rng: np.random.Generator, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources themselves, on states and cells of all kinds, beside the ranges of their cases."""
    for setting in settings(rng, 20 * budget):
        k, m, v, m_hat, v_hat, low, high = some(setting, rng, from_zero=from_zero)
        held = in_cases(columns(v, v_hat, high, low), BINARY32)
        both = zip((m, v, m_hat, v_hat, low, high), held[:-1], strict=True)
        whole = Cases._make([*both, held.order])
        monkeypatch.setattr(binary64_range, "ExponentRange", watching(held.order))
        evaluate(k, whole, from_zero=from_zero)
        monkeypatch.undo()


def watching(order: Any) -> Any:  # noqa: ANN401 - stands for a class
    """What makes a `Watched` where `ExponentRange` is made."""
    return lambda _order: Watched(order)


def test_every_state_and_cell_is_in_a_case(rng: np.random.Generator) -> None:
    for setting in [Setting(), Setting(bound=math.inf), Setting(bound=1e-46), Setting(bound=3e-45)]:
        last = largest_gradient(setting.case().constants)
        for from_zero in (True, False) if last > 0 else (True,):
            made = cases(setting.case().constants.gradient_bound, BINARY32, from_zero=from_zero)
            _, _, v, _, v_hat, low, high = some(Setting(), rng, from_zero=from_zero)
            for one in zip(v, v_hat, np.minimum(high, last), np.minimum(low, last), strict=True):
                assert is_in(made, *one), (one, setting)


def is_in(made: Cases, v: float, v_hat: float, high: float, low: float) -> bool:
    """Whether a case has them all."""
    order = list(made.order.values())
    found = (order[0] == np.sign(v - v_hat)) & (order[2] == (high > low))
    for value, held in ((v, made.v), (v_hat, made.v_hat), (high, made.high), (low, made.low)):
        found &= held.is_zero if value == 0 else (held.low <= math.log2(value)) & (math.log2(value) <= held.high)
    return bool(found.any())


def test_no_usual_claim_is_refused(rng: np.random.Generator, budget: int) -> None:
    """Nor most unusual ones: of op models that hold the step size in the denominator as well."""
    seen = set()
    hard = [Setting(eps=1e-12, betas=(0.0, 0.9)), Setting(betas=(0.999999, 0.9999999), step=1.0, bound=math.inf)]
    hard += [Setting(lr=1e-40, bound=math.inf), Setting(eps=1e10, bound=math.inf), Setting(betas=(0.9, 1e-38))]
    for setting in [*hard, *settings(rng, 20 * budget)]:
        case = setting.case()
        require_normal(case.constants)
        seen |= {model.update for model in case.models}
    assert Update.QUOTIENT in seen


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"radicand": 2.0**-900}, "no full precision"),
        ({"w": 2.0**-1030}, "no full precision"),
        ({"step": 2.0**1000}, "overflows"),
        ({"eps": 0.0}, "a divisor may be zero"),
    ],
)
def test_constants_of_which_a_result_may_leave_the_range_are_refused(changed: dict[str, float], says: str) -> None:
    constants = Setting().case().constants._replace(**changed)
    with pytest.raises(OutOfRangeError, match=says):
        require_normal(constants)


def test_a_claim_is_refused_in_a_sentence() -> None:
    setting = replace(Setting(bound=math.inf), eps=1e20, betas=(0.9, 0.9999999))
    with pytest.raises(UnsupportedError, match=r"in binary64") as refused:
        setting.case()
    assert str(refused.value).startswith("the guard")


def known(low: int, high: int, sign: int = 1, *, zero: bool = False) -> Exponents:
    """A number of 53 digits from `2**low` to `2**high`, or zero where that is said."""
    return exponents(np.array(low), np.array(high), np.array(sign), np.array(zero))


NOTHING = ExponentRange().constant(0.0)


@pytest.mark.parametrize(
    ("name", "operands", "low", "high", "grid", "sign", "zero"),
    [
        ("constant", (1.5,), 0, 1, -52, 1, False),
        ("constant", (-0.75,), -1, 0, -53, -1, False),
        ("add", (known(0, 1), known(3, 4)), 3, 5, -49, 1, False),
        ("add", (known(0, 1), known(3, 4, -1)), -52, 5, -52, 0, True),  # the terms may cancel
        ("add", (known(0, 1, zero=True), known(3, 4)), 3, 5, -49, 1, False),
        ("add", (known(0, 1, zero=True), known(3, 4, zero=True)), 0, 5, -52, 1, True),
        ("add", (NOTHING, known(0, 1, 0)), 0, 1, -52, 0, False),
        ("add", (known(0, 1, -1), NOTHING), 0, 1, -52, -1, False),
        ("sub", (known(0, 1), known(3, 4)), -52, 5, -52, 0, True),
        ("mul", (known(0, 1), known(3, 4, -1)), 3, 5, -49, -1, False),
        ("mul", (known(0, 1, zero=True), known(3, 4)), 3, 5, -49, 1, True),
        ("div", (known(0, 1), known(3, 4, -1)), -4, -2, -56, -1, False),
        ("div", (known(0, 1), known(3, 4, 0)), -4, -2, -56, 0, False),
        ("sqrt", (known(0, 4),), -1, 3, -53, 1, False),  # the platform's may be a unit in the last place off
        ("sqrt", (known(1, 5, zero=True),), -1, 4, -53, 1, True),
        ("negate", (known(0, 1),), 0, 1, -52, -1, False),
        ("absolute", (known(0, 1, 0),), 0, 1, -52, 1, False),
        ("minimum", (known(0, 1), known(3, 4)), 0, 1, -52, 1, False),
        ("maximum", (known(0, 1), known(3, 4, zero=True)), 0, 4, -52, 1, False),
    ],
)
def test_the_range_of_a_result_is_as_narrow_as_its_rule(
    name: str, operands: tuple[Any, ...], low: int, high: int, grid: int, sign: int, *, zero: bool
) -> None:
    found = getattr(ExponentRange(), name)(*operands)
    assert tuple(map(int, found)) == (low, high, grid, sign, int(zero))


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("constant", (0.0,)),
        ("add", (NOTHING, NOTHING)),
        ("mul", (NOTHING, known(3, 4, -1))),
        ("mul", (known(3, 4, 0), NOTHING)),
        ("div", (NOTHING, known(3, 4, -1))),
        ("sqrt", (NOTHING,)),
        ("negate", (NOTHING,)),
    ],
)
def test_zero_stays_zero_and_counts_as_positive(name: str, operands: tuple[Any, ...]) -> None:
    found = getattr(ExponentRange(), name)(*operands)
    assert found.is_zero
    assert found.zero
    assert found.sign == 1


def test_a_power_of_two_alone_is_not_zero() -> None:
    assert not known(0, 0).is_zero


@pytest.mark.parametrize("order", [-1, 0, 1])
def test_a_difference_has_the_sign_that_its_case_knows(order: int) -> None:
    a, b = known(0, 1), known(0, 1)
    found = ExponentRange({(id(a), id(b)): np.array(order)}).sub(a, b)
    assert bool(found.is_zero) == bool(found.zero) == (order == 0)
    assert int(found.sign) == (order or 1)


def test_the_normal_range_ends_where_binary64s_does() -> None:
    op = ExponentRange()
    assert int(op.mul(known(-1000, 0), known(-22, 0)).low) == -1022
    with pytest.raises(OutOfRangeError, match=r"2\*\*-1023 has no full precision"):
        op.mul(known(-1000, 0), known(-23, 0))
    assert int(op.finite(known(0, 1023)).high) == 1023
    with pytest.raises(OutOfRangeError, match=r"2\*\*1024 overflows"):
        op.finite(known(0, 1024))


def test_moments_and_gradients_are_multiples_of_their_formats_grid() -> None:
    made = np.array([[0, 64, -149, -85, 1, 0, 64, -149, -85, 1]]).T
    held = in_cases(made, BINARY32)
    assert [int(number.grid.min()) for number in held[:-1]] == [-149, -23, -149, -149, -149, -23]


@pytest.mark.parametrize("swapped", [False, True])
def test_what_may_be_no_number_is_taken_by_nothing(*, swapped: bool) -> None:
    op = ExponentRange()
    quotient = op.div(known(0, 1), known(0, 1, zero=True))
    for take in (op.minimum, op.maximum, op.add, op.mul):
        with pytest.raises(OutOfRangeError, match="a divisor may be zero"):
            take(*((known(0, 1), quotient) if swapped else (quotient, known(0, 1))))


def test_an_infinity_is_taken_by_a_minimum_alone() -> None:
    """And there only beside numbers that are not negative."""
    op = ExponentRange()
    small, large = op.constant(2.0**-900), op.constant(2.0**900)
    infinite = op.div(large, small)
    assert int(op.finite(op.minimum(infinite, large)).high) == int(large.high)
    for take, other in ((op.add, large), (op.maximum, large), (op.mul, small), (op.minimum, op.negate(large))):
        with pytest.raises(OutOfRangeError, match="overflows"):
            take(infinite, other)
