"""Ranges hold every result of an update, and the gradient bound is refused where, and only where, one may overflow."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import BOUNDS, Case, Setting, describe, pairs, settings

from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, FloatFormat, bits_of, from_bits, hex_of
from guarded_moments.reference.guard import overflow
from guarded_moments.reference.guard.overflow import (
    LARGEST_MOMENT,
    LARGEST_SECOND_MOMENT,
    RangeArithmetic,
    Value,
    largest_finite_gradient,
    require_all_finite,
)
from guarded_moments.reference.guard.search import largest_gradient
from guarded_moments.reference.op_models import OpModel


def value(low: float, high: float) -> Value:
    """Between two numbers."""
    return Value(Fraction(0), Fraction(0), Fraction(low), Fraction(high))


def require_finite(case: Case, model: OpModel, bound: float) -> None:
    """Refuse a claim for which an operation may overflow."""
    require_all_finite(model, case.options, [case.scalars], RangeArithmetic(Fraction(bound)))


def test_the_limit_is_the_last_binary32_up_to_which_nothing_overflows(rng: np.random.Generator, budget: int) -> None:
    for setting in settings(rng, 20 * budget):
        case = setting.case()
        for model in case.models:
            limit = largest_finite_gradient(model, case.options, case.scalars, math.inf)
            above = from_bits(bits_of(limit) + 1)
            require_finite(case, model, limit)
            with pytest.raises(UnsupportedError, match="an operation may reach"):
                require_finite(case, model, above)
            within = 0.9 * limit  # no binary32
            for bound, found in ((within, within), (limit, limit), (above, limit)):
                assert largest_finite_gradient(model, case.options, case.scalars, bound) == found, hex_of(bound)


@pytest.mark.parametrize("beta2", [0.95, 0.99, 0.999])
def test_the_limit_is_that_of_an_error_analysis(beta2: float) -> None:
    """The first to overflow is `v' = beta2*v + c*g*g`, rounded three times, or where it is squared first, `g*g`."""
    u, largest, c = 2.0**-24, float(BINARY32.largest), float(np.float32(1 - beta2))
    for implementation, expected in (
        ("torch-2.13-cpu-avx2/fused", ((largest / (1 + 3 * u) - beta2 * LARGEST_SECOND_MOMENT) / c) ** 0.5),
        ("torch-2.14-cuda/single", (largest / (1 + u)) ** 0.5),
    ):
        setting = Setting(betas=(0.9, beta2), bound=math.inf, implementation=implementation)
        assert setting.case().constants.gradient_bound == pytest.approx(expected, rel=2 * u)


def test_where_a_tiny_step_size_divides_the_denominator_that_is_the_first_to_overflow() -> None:
    setting = Setting(bound=math.inf, implementation="torch-2.13-cpu-avx2/compiled-foreach")
    limits = [replace(setting, lr=lr).case().constants.gradient_bound for lr in (1e-3, 1e-20)]
    assert limits[0] == pytest.approx(2.0**64, rel=1e-6)
    real = replace(setting, lr=1e-20).case().real  # `sqrt(beta2*v + c*g*g)/root/step` is the largest number
    second_moment = (BINARY32.largest * real.step * real.root) ** 2
    expected = float((second_moment - real.beta2 * Fraction(LARGEST_SECOND_MOMENT)) / real.c) ** 0.5
    assert limits[1] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(UnsupportedError, match=r"may overflow for these .* at any gradient: an operation may reach"):
        replace(setting, lr=1e-30).case()


class Watched:
    """Binary32 on tensors beside ranges: every result must lie in its range."""

    def __init__(self, gradient_bound: float) -> None:
        """As both arithmetics."""
        self._torch, self._ranges = TorchBinary32(), RangeArithmetic(Fraction(gradient_bound))

    def __getattr__(self, name: str) -> object:
        """The operation of both, and the comparison."""

        def operation(*operands: tuple[torch.Tensor, Value]) -> tuple[torch.Tensor, Value]:
            bits = getattr(self._torch, name)(*(operand[0] for operand in operands))
            held = getattr(self._ranges, name)(*(operand[1] for operand in operands))
            low, high = self._ranges.range(held)
            assert float(low) <= float(bits.min()), (name, operands)
            assert float(bits.max()) <= float(high), (name, operands)
            return bits, held

        return operation


def test_every_result_lies_in_its_range(rng: np.random.Generator, budget: int) -> None:
    for setting in settings(rng, 20 * budget, unusual=False):
        case = setting.case()
        bound = largest_gradient(case.constants)
        states = pairs(200, rng)
        scale = torch.from_numpy(rng.choice([1.0, 1e-3, 1e-9, 0.0], 200) * rng.choice([1.0, -1.0], 200))
        g = (scale * min(bound, 3e38)).float().clamp(-bound, bound)
        ranges = RangeArithmetic(Fraction(bound))
        watched: Any = Watched(bound)
        for model in case.models:
            constants: Any = Scalars(*((torch.tensor(x), ranges.constant(x)) for x in case.scalars))
            update: Any = make_update(watched, model, case.options)
            moments = (states.m, ranges.moment()), (states.v, ranges.second_moment()), (g, ranges.gradient())
            updates, _ = update(*moments, constants)
            assert bool(updates.isfinite().all()), describe(states, int((~updates.isfinite()).nonzero()[0]))


@pytest.mark.parametrize(
    ("name", "operands", "low", "high"),
    [
        ("add", (value(-1, 2), value(3, 4)), 2, 6),
        ("sub", (value(-1, 2), value(3, 4)), -5, -1),
        ("mul", (value(-1, 2), value(3, 4)), -4, 8),
        ("div", (value(-1, 2), value(2, 4)), -0.5, 1),
        ("div", (value(-1, 2), value(-4, -2)), -1, 0.5),
        ("fma", (value(-1, 2), value(3, 4), value(1, 1)), -3, 9),
        ("sqrt", (value(4, 9),), 0, 3),
        ("platform_sqrt", (value(-1, 16),), 0, 4),
    ],
)
def test_ranges_are_those_of_exact_results_and_one_rounding(
    name: str, operands: tuple[Value, ...], low: float, high: float
) -> None:
    op, u, n = RangeArithmetic(Fraction(1)), BINARY32.unit_roundoff, BINARY32.half_smallest_subnormal
    roundings = 3 if name == "platform_sqrt" else 1
    least, most = (Fraction(end) for end in (low, high))
    expected = least - roundings * (u * abs(least) + n), most + roundings * (u * abs(most) + n)
    assert op.range(getattr(op, name)(*operands)) == expected


def test_a_choice_is_either_of_both() -> None:
    op = RangeArithmetic(Fraction(1))
    for pair in ((value(-1, 2), value(3, 4)), (value(3, 4), value(-1, 2))):
        assert op.range(op.select_less(value(0, 1), value(0, 1), *pair)) == (Fraction(-1), Fraction(4))


def test_the_largest_number_is_finite_and_one_above_it_is_not() -> None:
    op, largest = RangeArithmetic(Fraction(1)), float(BINARY32.largest)
    for end in (largest, -largest):
        op.mul(value(end, end), value(1, 1))
        with pytest.raises(UnsupportedError, match="beyond the format's"):
            op.mul(value(end, end), value(1 + 2.0**-40, 1 + 2.0**-40))


def test_what_connects_operands_is_kept() -> None:
    """An interpolation is no larger than its ends, a square not negative, `fma(-b, x, x)` no larger than `x`."""
    op, a_little = RangeArithmetic(Fraction(2) ** 62), 1 + Fraction(2) ** -20
    m, g, w = op.moment(), op.gradient(), op.constant(0.25)
    assert op.range(op.fma(w, op.sub(g, m), m))[1] <= (2**60 + 3 * 2**58) * a_little
    square = op.mul(g, g)
    assert op.range(square)[0] >= -BINARY32.half_smallest_subnormal
    assert op.range(op.fma(op.constant(-0.75), square, square))[1] <= 2**122 * a_little


@pytest.mark.parametrize("divisor", [(-1, 1), (0, 1), (-1, 0), (0, 0)])
def test_a_divisor_that_may_be_zero_is_refused(divisor: tuple[float, float]) -> None:
    with pytest.raises(UnsupportedError, match="a divisor may be zero"):
        RangeArithmetic(Fraction(1)).div(value(1, 2), value(*divisor))


@pytest.mark.parametrize("changed", [{"step": -1e37}, {"step": 1e37}, {"root": 1e-30}, {"eps": 1e-45}])
def test_of_several_updates_the_one_that_overflows_is_seen(changed: dict[str, float]) -> None:
    case = Setting(bound=1.0).case()
    other = case.scalars._replace(**changed)
    for updates in ([case.scalars, other], [other, case.scalars]):
        with pytest.raises(UnsupportedError, match=r"an operation may reach|a divisor may be zero"):
            require_all_finite(case.models[0], case.options, updates, RangeArithmetic(Fraction(1)))
    require_all_finite(case.models[0], case.options, [case.scalars] * 2, RangeArithmetic(Fraction(1)))


@pytest.mark.parametrize("last", [2.0**-149, 0.4, 1.5, float(BINARY32.largest), math.inf])
def test_the_limit_is_looked_for_among_all_binary32(last: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them that is not beyond what overflows; where that is zero there is none."""

    def hazard(_model: object, _options: object, _scalars: object, g: float, _fmt: object) -> UnsupportedError | None:
        return UnsupportedError("an operation may reach") if g > last else None

    monkeypatch.setattr(overflow, "_hazard", hazard)
    case = Setting().case()
    limit = largest_finite_gradient.__wrapped__(case.models[0], case.options, case.scalars, math.inf)
    assert limit <= min(last, float(BINARY32.largest)) < from_bits(bits_of(limit) + 1), hex_of(limit)
    last = 2.0**-150
    with pytest.raises(UnsupportedError, match=r"at any gradient: an operation may reach"):
        largest_finite_gradient.__wrapped__(case.models[0], case.options, case.scalars, math.inf)


def test_a_format_with_less_range_is_refused_what_binary32_may_have() -> None:
    case = Setting(bound=1.0).case()
    model = case.models[0]
    assert math.log2(LARGEST_MOMENT) < math.log2(LARGEST_SECOND_MOMENT) < FloatFormat(24, 99).largest_exponent + 2
    assert largest_finite_gradient(model, case.options, case.scalars, 1.0) == 1.0
    with pytest.raises(UnsupportedError, match="beyond the format's"):
        largest_finite_gradient(model, case.options, case.scalars, 1.0, FloatFormat(24, 50))


def test_bounds_of_claims_are_within_the_limit() -> None:
    for bound in BOUNDS:
        case = Setting(bound=bound).case()
        for model in case.models:
            require_finite(case, model, case.constants.gradient_bound)
