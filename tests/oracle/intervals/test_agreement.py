"""The interval oracle against the search, on coordinates of every kind: neither may contradict the other."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from tests.oracle.intervals.settings import (
    COUNT,
    GAP,
    MEASURED,
    SETTINGS,
    Coordinate,
    Setting,
    Tensor,
    coordinate,
    described,
    tensor_of,
)

from guarded_moments.oracle.intervals import (
    Enclosure,
    Numbers,
    enclose,
)
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.guard import enclosure as guard_enclosure
from guarded_moments.reference.guard import search as guard_search


class Findings(NamedTuple):
    """What the two oracles say about the worst case of one coordinate, in units of the parameter."""

    state: Coordinate
    intervals: Enclosure
    lower: float  #: of the search, in real numbers
    upper: float
    slack: float  #: how far rounding may move either
    gradient: float  #: the search's worst
    deviation: float  #: bit-exact there


def ask_both(tensor: Tensor, state: Coordinate, constants: GuardConstants) -> Findings:
    """The enclosures of both oracles; the search uses `constants`."""
    search = guard_enclosure.enclose(constants, state.states)
    gradient = search.gradient.float()
    bound = tensor.constants.gradient_bound
    return Findings(
        state,
        enclose(tensor.model, tensor.options, tensor.scalars, *state, bound, relative_gap=GAP),
        float(search.lower),
        float(search.upper),
        float(guard_search.slack_of(constants, state.states)),
        float(gradient),
        float(tensor.trajectories.deviations(state.states, gradient)),
    )


@cache
def findings(setting: Setting, seed: int, count: int) -> list[Findings]:
    """Ask both oracles about that many random coordinates."""
    tensor = tensor_of(setting)
    rng = np.random.default_rng([seed, SETTINGS.index(setting)])
    return [ask_both(tensor, coordinate(rng), tensor.constants) for _ in range(count)]


def contradictions(found: Findings) -> list[str]:
    """In what the two oracles cannot both be right."""
    lower, upper = found.intervals.lower, found.intervals.upper
    checks = {
        "the intervals' enclosure is empty": lower <= upper,
        "the op model exceeds the intervals' upper end": found.deviation <= upper,
        "the intervals' lower end exceeds the search's upper end": lower <= found.upper + found.slack,
        "the search's lower end exceeds the intervals' upper end": found.lower - found.slack <= upper,
    }
    return [what for what, consistent in checks.items() if not consistent]


def test_both_oracles_agree_on_the_worst_case(tensor: Tensor, seed: int, budget: int) -> None:
    for found in findings(tensor.setting, seed, COUNT * budget):
        wrong = contradictions(found)
        assert not wrong, described(tensor, found.state, found.gradient, wrong=wrong, found=found)


def test_both_numbers_enclose_the_same_worst_case(
    tensor: Tensor, seed: int, budget: int, compared: Counter[str]
) -> None:
    for found in findings(tensor.setting, seed, COUNT * budget):
        bound = tensor.constants.gradient_bound
        arb = enclose(
            tensor.model, tensor.options, tensor.scalars, *found.state, bound, relative_gap=GAP, numbers=Numbers.ARB
        )
        wrong = contradictions(found._replace(intervals=arb))
        assert not wrong, described(tensor, found.state, found.gradient, wrong=wrong, found=found, arb=arb)
        mpmath = found.intervals
        assert max(mpmath.lower, arb.lower) <= min(mpmath.upper, arb.upper), described(
            tensor, found.state, arb.gradient, mpmath=mpmath, arb=arb
        )
        # Nor is one idle: balls are wider than intervals, which shows where rounding is most of a deviation.
        assert arb.upper - arb.lower <= 4 * max(mpmath.upper - mpmath.lower, GAP * mpmath.upper), described(
            tensor, found.state, arb.gradient, mpmath=mpmath, arb=arb
        )
        compared["enclosures by both numbers"] += 1


@pytest.mark.parametrize("share", [0.8, 0.97, 1.03, 1.2])
@pytest.mark.parametrize("model", [*MEASURED, None], ids=lambda model: "{}/{}".format(*model) if model else "others")
def test_both_oracles_agree_on_the_verdict(model: tuple[str, int] | None, share: float, seed: int, budget: int) -> None:
    asked = decided = 0
    for setting in SETTINGS:
        own = (setting.implementation, setting.model)
        if own != model and (model or own in MEASURED):
            continue
        tensor = tensor_of(setting)
        for found in findings(setting, seed, COUNT * budget):
            threshold = share * max(found.intervals.lower, found.deviation)
            if threshold < 100 * found.slack:  # 3 % off is then within rounding, and the budget may run out
                continue
            asked += 1
            expected = Verdict.SAFE if found.intervals.upper <= threshold else Verdict.UNSAFE
            if expected is Verdict.UNSAFE and found.intervals.lower <= threshold:
                continue
            decided += 1
            decisions = decide(tensor.constants._replace(threshold=threshold), tensor.trajectories, found.state.states)
            assert int(decisions.verdict) == expected, described(
                tensor, found.state, float(decisions.witness), threshold=threshold, search=decisions, found=found
            )
    assert asked >= 4 * COUNT
    assert decided >= 0.9 * asked


@pytest.mark.parametrize("field", ["w", "radicand", "curvature"])
def test_the_comparison_would_notice_a_wrong_search(field: str, rng: np.random.Generator) -> None:
    tensor = tensor_of(Setting("torch-2.13-cpu-avx2/fused", 0, 0.9, 400, 1.0))
    wrong = tensor.constants._replace(**{field: 1.1 * getattr(tensor.constants, field)})
    noticed = [bool(contradictions(ask_both(tensor, coordinate(rng), wrong))) for _ in range(24)]
    assert sum(noticed) >= 4  # most; not where `v` is so small that the constant does not matter
