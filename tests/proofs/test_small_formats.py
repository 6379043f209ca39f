"""The whole claim in small formats: no violation, not vacuous, and every term of the guard is needed."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from guarded_moments.proofs.small_formats import (
    SLACK,
    TERMS,
    Exhausted,
    Setting,
    SmallFormat,
    coded_pairs,
    every_pair,
    second_moments,
    settings,
)
from guarded_moments.reference.floats import FloatFormat
from guarded_moments.reference.op_models import Maximum

FOUR, FIVE, SIX = (FloatFormat(digits, 7) for digits in (4, 5, 6))
#: The bound up to which a pair counts as accepted, in units of the step.
TOLERANCE = 1.0
#: Weights with which rounding the first moment matters most.
STEADY: dict[str, Any] = {"beta1": 0.9, "beta2": 0.5}


def of(fmt: FloatFormat, name: str = "torch-2.13-cpu-avx2/fused/body") -> Setting:
    return next(setting for setting in settings(fmt) if setting.model.name == name)


def is_meaningful(found: Exhausted) -> bool:
    """Whether a tenth of the pairs is accepted, and a tenth rejected."""
    return min(found.accepted, found.pairs - found.accepted) * 10 >= found.pairs


@pytest.mark.usefixtures("one_thread")
def test_a_format_rounds_to_the_nearest_value_and_ties_to_even(rng: np.random.Generator) -> None:
    small = SmallFormat(FIVE)
    values = small.values(4.0)
    assert torch.equal(small.round(values), values)
    exact = [Fraction(float(value)) for value in values]
    middles = (values[1:] + values[:-1]) / 2
    ties = small.round(middles)
    for place, (middle, rounded) in enumerate(zip(middles, ties, strict=True)):
        even = values[place + place % 2]  # the position of a value has the parity of its last digit
        assert rounded == even, f"{middle} became {rounded}"
    for value in rng.uniform(0, 3.9, 300):
        rounded = Fraction(float(small.round(torch.tensor(value, dtype=torch.float64))))
        assert abs(Fraction(value) - rounded) == min(abs(Fraction(value) - one) for one in exact)
    assert small.round(torch.tensor([500.0, -500.0], dtype=torch.float64)).tolist() == [torch.inf, -torch.inf]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.timeout(1800)
def test_every_state_and_every_gradient_of_a_small_format(budget: int) -> None:
    """All first moments, native and recovered, and all gradients, of some pairs of second moments.

    With `--oracle` of enough pairs for 1e9 cases, and of every pair of a format of four digits: 4.7e9 more.
    """
    setting = replace(of(FIVE), **STEADY, eps=0.5)
    found = every_pair(setting, TOLERANCE, second=second_moments(setting)[:: 3000 if budget == 1 else 140])
    assert found.violations == 0, found
    assert found.overflows == 0, found
    assert is_meaningful(found), found
    assert found.cases > (5e7 if budget == 1 else 1e9)
    if budget > 1:
        smallest = every_pair(replace(of(FOUR), **STEADY, eps=1.0), 2 * TOLERANCE)
        assert smallest.violations == 0, smallest
        assert is_meaningful(smallest), smallest
        assert smallest.cases > 4e9


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("setting", list(settings(FIVE)), ids=lambda setting: f"{setting.model.name}-{setting.beta1}")
def test_every_op_model_in_a_small_format(setting: Setting) -> None:
    setting = replace(setting, eps=1.0)
    found = every_pair(setting, TOLERANCE, second=second_moments(setting)[5::16000])
    assert found.violations == 0, found
    assert found.pairs > 5e4


@pytest.mark.usefixtures("one_thread")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("maximum", list(Maximum))
def test_amsgrad_stays_within_the_same_bound(maximum: Maximum, budget: int) -> None:
    """Third moments below, between and above both second ones; with `--oracle` all of a format of four digits."""
    fmt = FIVE if budget == 1 else FOUR
    setting = replace(of(fmt), **STEADY, eps=0.5 if budget == 1 else 1.0)
    setting = replace(
        setting,
        model=replace(setting.model, maximum=maximum),
        options=replace(setting.options, amsgrad=True),
    )
    second = second_moments(setting)[::4001] if budget == 1 else second_moments(setting)[::29]
    found = every_pair(setting, TOLERANCE, second=second, third=range(0, 113, 28) if budget == 1 else None)
    assert found.violations == 0, found
    assert found.overflows == 0, found
    assert is_meaningful(found), found
    assert found.cases > (1e7 if budget == 1 else 1e9)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("tolerance", [0.4, 0.5])
def test_states_as_a_codec_decodes_them(tolerance: float) -> None:
    """Every native state of some second moments with the one that three digits store, and every gradient."""
    setting = replace(of(SIX), **STEADY, eps=0.5)
    found = coded_pairs(setting, tolerance, digits=3, stride=16)
    assert found.violations == 0, found
    assert found.cases > 3e6
    assert is_meaningful(found), found


LAST = -1
#: Where underflow moves updates most: the step size is near the smallest number, and nothing divides evenly.
UNDERFLOW: dict[str, Any] = {**STEADY, "eps": 1.333, "step": 2.0**-9, "largest": 0.0, "largest_first": 0.5}
#: Where a term is needed: format, numbers of the kernel, and pairs of second moments by their places.
NEEDED: dict[str, tuple[FloatFormat, dict[str, Any], list[tuple[int, int]]]] = {
    "first_moment": (FIVE, {**STEADY, "eps": 1.0}, [(LAST, LAST)]),
    "second_moment": (SIX, {**STEADY, "eps": 0.5}, [(0, LAST)]),
    "gradient": (FloatFormat(10, 7), {"largest_first": 0.0}, [(0, LAST)]),
    "rounding": (FIVE, {**STEADY, "eps": 1.0}, [(LAST, LAST)]),
    "slack_moment": (SIX, {"beta1": 0.99, "beta2": 0.5, "eps": 0.5}, [(0, 0)]),
    "slack_gradient": (FIVE, {"largest_first": 0.0}, [(place, place + 1) for place in range(20, 100)]),
    "slack_reciprocal": (FloatFormat(10, 3), UNDERFLOW, [(0, 0)]),
    "slack_floor": (FloatFormat(10, 3), UNDERFLOW, [(0, 0)]),
}


@cache
def whole_bound(setting: Setting, second: tuple[tuple[int, int], ...]) -> Exhausted:
    """Of pairs of second moments, with nothing left out; several terms are tried on some."""
    return every_pair(setting, TOLERANCE, second=second)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("term", [*TERMS, *SLACK])
def test_every_term_of_the_guard_is_needed(term: str) -> None:
    """Left out, some pair deviates by more than the rest of the bound."""
    fmt, numbers, places = NEEDED[term]
    setting = replace(of(fmt), **numbers)
    count = len(SmallFormat(setting.fmt).values(setting.largest))
    second = [(i % count, j % count) for i, j in places]
    whole, rest = whole_bound(setting, tuple(second)), every_pair(setting, TOLERANCE, second=second, without=term)
    assert whole.violations == 0, whole
    assert rest.violations > 0, f"not needed: {term}: {rest}"


def test_a_format_too_coarse_for_the_slack_is_refused() -> None:
    with pytest.raises(ValueError, match="not below one"):
        every_pair(replace(of(FloatFormat(3, 7)), eps=0.1), TOLERANCE)
