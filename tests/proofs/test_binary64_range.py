"""No operation of the guard underflows: the rules hold of numbers, and the constants are in their ranges."""

import math

import numpy as np
import pytest
from tests.reference.guard.cases import Setting, settings

from guarded_moments.proofs.binary64_range import (
    RANGES,
    SMALLEST_NORMAL,
    SOURCES,
    ExponentRange,
    Exponents,
    least_exponent,
)
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.op_models import Update


@pytest.mark.parametrize("source", SOURCES)
def test_no_product_quotient_or_root_underflows(source: str) -> None:
    assert least_exponent(source) >= SMALLEST_NORMAL


def test_a_wider_range_is_seen_to_underflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: with any epsilon and beta that binary32 holds, it does."""
    wider = RANGES._replace(eps=Exponents(-74, 128), complement=Exponents(-149, 1), radicand=Exponents(-149, 55))
    monkeypatch.setattr("guarded_moments.proofs.binary64_range.RANGES", wider)
    assert least_exponent("guard.closed_form") < SMALLEST_NORMAL


def within(value: float, found: Exponents) -> bool:
    return value == 0 or found.low <= math.log2(abs(value)) <= found.high


def test_the_rules_hold_of_numbers(rng: np.random.Generator) -> None:
    op = ExponentRange(cancels=True)
    for _ in range(300):
        a, b = (float(rng.normal() * 2.0 ** rng.integers(-60, 60)) for _ in range(2))
        x, y = (op.constant(value) for value in (a, b))
        results = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "distance": abs(a - b)}
        results |= {"minimum": min(a, b), "maximum": max(a, b)}
        for name, value in results.items():
            if name != "distance" or min(abs(a), abs(b)) > 2.0**-40:  # of numbers that binary32 holds
                assert within(value, getattr(op, name)(x, y)), f"{name} of {a!r} and {b!r} is {value!r}"
        assert within(math.sqrt(abs(a)), op.sqrt(x))


def test_the_constants_of_a_guard_are_in_their_ranges(rng: np.random.Generator, budget: int) -> None:
    hard = [Setting(eps=1e-12, betas=(0.0, 0.9)), Setting(betas=(0.999999, 0.9999999), step=1.0), Setting(lr=1e-30)]
    for setting in [*hard, *settings(rng, 30 * budget)]:
        case = setting.case()
        if any(model.update is Update.QUOTIENT for model in case.models):
            continue
        for name, value, found in zip(GuardConstants._fields, case.constants, RANGES, strict=True):
            assert within(value, found), f"{name} {value!r} of {setting}"
