"""Later updates in small formats: every sequence of two or three gradients, no violation, and the slack is needed."""

from dataclasses import replace

import pytest
import torch

from guarded_moments.proofs.small_formats import Setting, SmallFormat, settings
from guarded_moments.proofs.small_sequences import every_sequence, later_constants_of, second_moments_of
from guarded_moments.reference.floats import FloatFormat

FOUR, FIVE = (FloatFormat(digits, 7) for digits in (4, 5))
SLACK = ("slack_moment", "slack_reciprocal", "slack_gradient", "slack_floor")


def of(fmt: FloatFormat, **numbers: float) -> Setting:
    setting = next(one for one in settings(fmt) if one.model.name == "torch-2.13-cpu-avx2/fused/body")
    return replace(setting, **numbers)  # type: ignore[arg-type]


def first_moments(setting: Setting, stride: int) -> torch.Tensor:
    magnitudes = SmallFormat(setting.fmt).values(setting.largest)
    return torch.cat([-magnitudes.flip(0)[:-1], magnitudes])[::stride]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.timeout(900)
def test_every_pair_of_gradients(budget: int) -> None:
    setting = of(FIVE, beta1=0.9, beta2=0.9, eps=1.0)
    first = first_moments(setting, 40 if budget == 1 else 10)
    pairs = second_moments_of(setting, 2111 if budget == 1 else 211)
    found = every_sequence(setting, 2, 2.0, first, pairs)
    assert found.violations == 0, found
    assert found.overflows == 0, found
    assert min(found.accepted, found.pairs - found.accepted) * 10 >= found.pairs, found
    assert found.cases > (1e7 if budget == 1 else 1e9)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.timeout(900)
def test_every_triple_of_gradients(budget: int) -> None:
    setting = of(FOUR, beta1=0.9, beta2=0.5, eps=0.5, largest=0.25 if budget == 1 else 1.0)
    first = first_moments(setting, 20 if budget == 1 else 16)
    found = every_sequence(setting, 3, 12.0, first, second_moments_of(setting, 577 if budget == 1 else 311))
    assert found.violations == 0, found
    assert found.overflows == 0, found
    assert 0 < found.accepted < found.pairs, found
    assert found.cases > (1e7 if budget == 1 else 3e8)


@pytest.mark.usefixtures("one_thread")
def test_without_the_slack_some_sequence_violates() -> None:
    setting = of(FIVE, beta1=0.9, beta2=0.5, eps=0.5)
    first, pairs = first_moments(setting, 56), second_moments_of(setting, 4111)
    assert every_sequence(setting, 2, 2.0, first, pairs).violations == 0
    for without in (SLACK, ("slack_moment", "slack_gradient")):
        assert every_sequence(setting, 2, 2.0, first, pairs, without=without).violations > 0, without


def test_a_format_that_is_too_coarse_has_no_bound() -> None:
    with pytest.raises(ValueError, match="rounding has no bound"):
        later_constants_of(of(FOUR, beta1=0.5, beta2=0.9, eps=0.5), 3)
