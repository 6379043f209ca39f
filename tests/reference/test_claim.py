"""Claims: what makes none is refused, and what is claimed is said in a sentence."""

import dataclasses
import math

import pytest

from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.errors import GuardedMomentsError, InvalidClaimError, UnsupportedError

NAME = "torch-2.13-cpu-avx2/single"


@pytest.mark.parametrize("value", [0.0, -0.0, -0.01, math.inf, -math.inf, math.nan])
def test_a_tolerance_that_makes_no_claim_is_refused(value: float) -> None:
    with pytest.raises(InvalidClaimError, match=r"tolerance is .*: expected a positive, finite number") as raised:
        Tolerance(value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", [5e-324, 0.01, 1.0, 1e308])
def test_a_tolerance_is_any_positive_finite_number(value: float) -> None:
    assert Tolerance(value).value == value


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -math.inf, math.nan])
def test_a_gradient_bound_that_makes_no_claim_is_refused(value: float) -> None:
    with pytest.raises(InvalidClaimError, match=r"grad-bound is .*: expected a positive number, or inf") as raised:
        GradientBound(value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", [5e-324, 1.0, 1e308, math.inf])
def test_a_gradient_bound_may_be_infinite(value: float) -> None:
    assert GradientBound(value).value == value


@pytest.mark.parametrize(("text", "updates"), [("1", 1), (" 1\n", 1), ("10", 10), ("1000", 1000), ("all", None)])
def test_a_horizon_is_a_number_of_updates_or_all(text: str, updates: int | None) -> None:
    horizon = Horizon.parse(text)
    assert horizon == Horizon(updates)
    assert Horizon.parse(str(horizon)) == horizon


@pytest.mark.parametrize("text", ["0", "1001", "", "1.0", "-1", "ALL", "1e2", "\u0661", "9" * 5000])
def test_a_horizon_that_makes_no_claim_is_refused(text: str) -> None:
    with pytest.raises(InvalidClaimError, match="expected a number of updates from 1 to 1000, or all"):
        Horizon.parse(text)


def test_a_refusal_is_an_error_of_the_package() -> None:
    assert issubclass(InvalidClaimError, GuardedMomentsError)
    assert issubclass(UnsupportedError, GuardedMomentsError)


def test_the_sentence_names_all_that_the_claim_is_about() -> None:
    claim = Claim(Tolerance(0.01), GradientBound(1.0), NAME)
    assert claim.horizon == Horizon.FIRST
    assert claim.sentence() == f"first update within 0.01 lr of native, for every gradient |g| <= 1, {NAME}"
    assert claim.not_claimed() == (
        "later updates, gradients above 1, other op models, flush-to-zero, the parameter's own rounding"
    )


def test_without_a_bound_no_gradient_is_left_out() -> None:
    claim = Claim(Tolerance(0.25), GradientBound(math.inf), NAME)
    assert claim.sentence() == (
        "first update within 0.25 lr of native, for every finite gradient below the op model's overflow limit, " + NAME
    )
    assert claim.not_claimed() == "later updates, other op models, flush-to-zero, the parameter's own rounding"


def test_a_claim_cannot_be_changed() -> None:
    claim = Claim(Tolerance(0.01), GradientBound(1.0), NAME)
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.implementation = "another"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.tolerance.value = 0.02  # type: ignore[misc]
