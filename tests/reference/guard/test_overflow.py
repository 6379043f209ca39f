"""Ranges hold every result of an update, and the gradient bound is refused where, and only where, one may overflow."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import BOUNDS, Setting, describe, pairs, settings

from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, FloatFormat
from guarded_moments.reference.guard.overflow import RangeArithmetic, Value, require_finite
from guarded_moments.reference.guard.search import largest_gradient
from guarded_moments.reference.guard.slack import LARGEST_MOMENT, LARGEST_SECOND_MOMENT, rounding_slack


def value(low: float, high: float) -> Value:
    """Between two numbers."""
    return Value(Fraction(0), Fraction(0), Fraction(low), Fraction(high))


def test_every_claim_may_have_its_limit_and_a_hundredth_more_is_refused(rng: np.random.Generator, budget: int) -> None:
    """The limit is that of the error bounds, the refusal that of the source: they meet."""
    for setting in settings(rng, 40 * budget):
        case = setting.case()
        for model in case.models:
            slack = rounding_slack(model, case.options, case.scalars, BINARY32)
            assert slack is not None
            limit = float(slack.largest_gradient) * (1 - 2.0**-50)
            require_finite(model, case.options, case.scalars, limit)
            with pytest.raises(UnsupportedError, match="an operation may reach"):
                require_finite(model, case.options, case.scalars, 1.01 * limit)


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
    op = RangeArithmetic(Fraction(1))
    least, most = op.range(getattr(op, name)(*operands))
    room = 4 * 2.0**-24 * max(abs(low), abs(high)) + 2.0**-140
    assert low - room <= least <= low, float(least)
    assert high <= most <= high + room, float(most)


def test_what_connects_operands_is_kept() -> None:
    """An interpolation is no larger than its ends, a square not negative, `fma(-b, x, x)` no larger than `x`."""
    op, a_little = RangeArithmetic(Fraction(2) ** 62), 1 + Fraction(2) ** -20
    m, g, w = op.moment(), op.gradient(), op.constant(0.25)
    assert op.range(op.fma(w, op.sub(g, m), m))[1] <= (2**60 + 3 * 2**58) * a_little
    square = op.mul(g, g)
    assert op.range(square)[0] >= -BINARY32.half_smallest_subnormal
    assert op.range(op.fma(op.constant(-0.75), square, square))[1] <= 2**122 * a_little


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a divisor may be zero"):
        RangeArithmetic(Fraction(1)).div(value(1, 2), value(-1, 1))


def test_a_format_with_less_range_is_refused_what_binary32_may_have() -> None:
    case = Setting(bound=1.0).case()
    model = case.models[0]
    require_finite(model, case.options, case.scalars, 1.0)
    assert math.log2(LARGEST_MOMENT) < math.log2(LARGEST_SECOND_MOMENT) < FloatFormat(24, 99).largest_exponent + 2
    with pytest.raises(UnsupportedError, match="beyond the format's"):
        require_finite(model, case.options, case.scalars, 1.0, FloatFormat(24, 50))


def test_bounds_of_claims_are_within_the_limit() -> None:
    for bound in BOUNDS:
        case = Setting(bound=bound).case()
        for model in case.models:
            require_finite(model, case.options, case.scalars, case.constants.gradient_bound)
