"""The filter in binary32 decides as the guard does, or leaves it to the guard."""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting, describe, pairs, settings, trained_pairs
from torch import Tensor

from guarded_moments.reference.arithmetic import TorchBinary64
from guarded_moments.reference.arithmetic.rounding_bound import RoundingBound
from guarded_moments.reference.floats import FloatFormat
from guarded_moments.reference.guard import GuardConstants, binary32_filter, closed_form_guard
from guarded_moments.reference.guard.binary32_filter import make_filter
from guarded_moments.reference.guard.closed_form import bound_inflation, lifted, make_deviation_bound
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.kernels.filtering import (
    OPEN,
    REJECTED,
    State,
    compiled_filter,
    filtered_guard,
    make_block_guard,
)

BLOCK = 1 << 10
NEAR = 2.0**-18  #: relative: some times what the filter may err by


def marks(judge: Callable[..., None], constants: GuardConstants[float], states: States) -> np.ndarray:
    found, guard = np.full(len(states.m), 99, dtype=np.uint8), filtered_guard(constants)
    arrays = [moment.numpy() for moment in states]
    arrays += [array.view(np.uint32) for array in arrays]
    for begin in range(0, len(found), BLOCK):
        judge(guard, State(*(array[begin : begin + BLOCK] for array in arrays)), found[begin : begin + BLOCK])
    return found


def near_the_threshold(constants: GuardConstants[float], states: States, rng: np.random.Generator) -> States:
    """The states whose bound can be brought within `NEAR` of the threshold by moving the recovered first moment."""

    def bound(m_hat: Tensor) -> Tensor:
        moments = (states.m.double(), states.v.double(), m_hat, states.v_hat.double())
        return make_deviation_bound(TorchBinary64())(lifted(constants), *moments) * bound_inflation()

    m = states.m.double()
    wanted = constants.threshold * (1 + NEAR * torch.from_numpy(rng.uniform(-1, 1, len(m))))
    low, high = m.clone(), m + torch.from_numpy(rng.uniform(0.5, 1, len(m))) * (m.abs() + states.v.double().sqrt())
    within = (bound(low) < wanted) & (bound(high) > wanted)
    for _ in range(60):
        middle = (low + high) / 2
        less = bound(middle) < wanted
        low, high = torch.where(less, middle, low), torch.where(less, high, middle)
    return States(*(moment[within] for moment in (states.m, states.v, low.float(), states.v_hat)))


def require_the_guards(constants: GuardConstants[float], states: States) -> int:
    """Compare, and return how many the filter left open."""
    expected = ~closed_form_guard(constants, *states).numpy()
    wrong = np.flatnonzero((marks(make_block_guard(BLOCK), constants, states) == REJECTED) != expected)
    assert not len(wrong), f"{len(wrong)} decided otherwise: {describe(states, int(wrong[0]))}"
    return int((marks(compiled_filter(), constants, states) == OPEN).sum())


def test_claims_of_all_kinds(rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    """With --oracle some millions near the threshold."""
    count, settled = 1024 * budget, 0
    for setting in settings(rng, 16):
        constants = setting.case().constants
        require_the_guards(constants, pairs(count, rng))
        near = near_the_threshold(constants, trained_pairs(4 * count, rng), rng)
        settled += len(near.m) - require_the_guards(constants, near)
        compared["decisions near the threshold"] += len(near.m)
    assert settled > count


def test_little_is_left_open(rng: np.random.Generator) -> None:
    constants = Setting().case().constants
    states = trained_pairs(1 << 16, rng)
    rejected = int((marks(compiled_filter(), constants, states) == REJECTED).sum())
    assert rejected > 1 << 10
    assert require_the_guards(constants, states) <= 2


def test_the_limits_are_next_to_the_threshold() -> None:
    constants = Setting().case().constants
    found = make_filter(constants)
    low, high = (Fraction(float(x)) / Fraction(constants.threshold) - 1 for x in (found.accepted, found.rejected))
    assert -4e-6 < low < -1e-6
    assert 1e-6 < high < 4e-6


def test_the_limits_are_those_of_the_errors_and_no_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    """With errors that one sees: of a wide format of ten digits, and an inflation of a quarter."""
    wide_format, inflation, threshold = FloatFormat(10, 127), Fraction(5, 4), Fraction(3)
    monkeypatch.setattr(binary32_filter, "BINARY64", wide_format)
    monkeypatch.setattr(binary32_filter, "bound_inflation", lambda: 1.25)
    narrow = RoundingBound(Fraction(0), Fraction(8), roundings=1 << 16, absolute=Fraction(1, 100))
    wide = RoundingBound(Fraction(0), Fraction(8), roundings=30, absolute=Fraction(1, 50))
    t, s = 1 - Fraction(1, 2**24), 1 - Fraction(1, 2**10)

    def largest(f: np.float32) -> Fraction:
        """What the wide format may compute where the narrow one computes `f`."""
        return (Fraction(float(f)) + narrow.absolute) / t**narrow.roundings / s**wide.roundings + wide.absolute

    def smallest(f: np.float32) -> Fraction:
        return (Fraction(float(f)) - narrow.absolute) * t**narrow.roundings * s**wide.roundings - wide.absolute

    accepted, rejected = binary32_filter._limits(threshold, narrow, wide)

    assert largest(accepted) * inflation <= threshold < largest(np.nextafter(accepted, np.float32(9))) * inflation
    above = threshold * (1 + Fraction(4, 2**10))  # whose product is above the threshold, rounded twice
    assert smallest(rejected) * inflation >= above > smallest(np.nextafter(rejected, np.float32(0))) * inflation


def test_ordinary_states_are_between_powers_of_two() -> None:
    assert {math.frexp(limit)[0] for ordinary in binary32_filter._ORDINARY for limit in ordinary} == {0.5}


@pytest.mark.parametrize(
    "setting", [Setting(lr=1e-30), Setting(eps=1e-12), Setting(tolerance=1e-9), Setting(lr=1e-40, eps=1e-6)], ids=str
)
def test_where_binary32_is_too_narrow_the_guard_decides(setting: Setting, rng: np.random.Generator) -> None:
    constants = setting.case().constants
    require_the_guards(constants, trained_pairs(2000, rng))
    require_the_guards(constants, pairs(2000, rng))


def test_a_filter_without_slack_is_caught(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded."""
    constants = Setting().case().constants
    near = near_the_threshold(constants, trained_pairs(1 << 16, rng), rng)
    threshold = np.float32(constants.threshold)
    monkeypatch.setattr(binary32_filter, "_limits", lambda *_: (threshold, threshold))
    make_filter.cache_clear()
    try:
        with pytest.raises(AssertionError, match="decided otherwise"):
            require_the_guards(constants, near)
    finally:
        make_filter.cache_clear()
