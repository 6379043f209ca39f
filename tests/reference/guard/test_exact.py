"""The exact guard accepts more than the closed form and nothing that a gradient violates, compiled or not."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import (
    Case,
    Setting,
    describe,
    pairs,
    sampled_worst,
    settings,
    trained_pairs,
)

from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, compiled_search, exact
from guarded_moments.reference.guard.exact import exact_guard, search
from guarded_moments.reference.guard.search import CellBounds, Outcome, States, allowance, cleared

INF = math.inf


def both(first: States, second: States) -> States:
    return States(*(torch.cat(moments) for moments in zip(first, second, strict=True)))


def contested(rng: np.random.Generator, count: int, size: int) -> Iterator[tuple[Case, States]]:
    """Claims with states of which many are near the threshold: half of those with a chance are within it."""
    for setting in settings(rng, count, unusual=False):
        case = setting.case()
        states = both(pairs(size, rng), trained_pairs(2 * size, rng, off=0.1))
        worst, _ = sampled_worst(case, states, 30)
        threshold = float(worst[worst > 1e-5 * case.constants.step].median()) * 1.001
        yield case._replace(constants=case.constants._replace(threshold=threshold)), states


def test_what_it_accepts_is_safe(rng: np.random.Generator, budget: int) -> None:
    more = 0
    for case, states in contested(rng, 20 * budget, 60):
        accepted = exact_guard(case.constants, *states)
        closed = closed_form_guard(case.constants, *states)
        assert not bool((closed & ~accepted).any()), "the closed form accepts more"
        more += int((accepted & ~closed).sum())
        same = (states.m == states.m_hat) & (states.v == states.v_hat)
        chosen = states.select((accepted & ~same).nonzero().flatten())
        for model in case.models:
            verdict = decide(case.constants, case.trajectories(model), chosen).verdict
            bad = (verdict == Verdict.UNSAFE).nonzero().flatten().tolist()
            assert [f"{model.name} {case.constants}: {describe(chosen, i)}" for i in bad] == []
    assert more > 100 * budget


def test_what_it_rejects_is_not_far_from_unsafe(rng: np.random.Generator) -> None:
    """Rejected are only those that violate the claim, or come within twice the slack of it."""
    for case, states in contested(rng, 10, 60):
        rejected = (~exact_guard(case.constants, *states)).nonzero().flatten()
        chosen = states.select(rejected)
        worst, _ = sampled_worst(case, chosen, 200)
        allowed = allowance(case.constants, chosen) * case.constants.step
        near = worst > allowed - 1e-3 * case.constants.threshold
        bad = (~near & (allowed > 0)).nonzero().flatten().tolist()
        assert [f"{case.constants}: {describe(chosen, i)}" for i in bad] == []


def test_compiled_and_vectorised_decide_alike(rng: np.random.Generator, budget: int) -> None:
    for case, states in contested(rng, 8 * budget, 150):
        found = search(case.constants, states)
        vectorised = cleared(case.constants, states).cleared
        differ = ((found.outcome == Outcome.CLEARED) != vectorised).nonzero().flatten().tolist()
        assert [f"{case.constants}: {describe(states, i)}" for i in differ] == []
        assert not bool((found.outcome == Outcome.SPENT).any())


def test_an_exceeding_gradient_exceeds(rng: np.random.Generator) -> None:
    for case, states in contested(rng, 10, 100):
        found = search(case.constants, states)
        exceeded = (found.outcome == Outcome.EXCEEDED).nonzero().flatten()
        assert len(exceeded)
        chosen, g = states.select(exceeded), found.gradient[exceeded].double()
        bounds = CellBounds(case.constants, chosen)
        plus, minus = bounds.value(bounds.end(g.abs()))
        value = torch.where(torch.signbit(g), minus, plus)
        assert bool((g.abs() <= case.constants.gradient_bound).all())
        assert bool((value > allowance(case.constants, chosen) * (1 - 1e-9)).all())


def test_out_of_budget_is_not_accepted(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer cells or rounds only fewer are cleared."""
    ((case, states),) = contested(rng, 1, 300)
    whole = search(case.constants, states).outcome == Outcome.CLEARED
    for rounds in (0, 1):
        few = cleared(case.constants, states, rounds=rounds).cleared
        assert not bool((few & ~whole).any())
        assert bool((whole & ~few).any())
    compiled_search.compiled_search.cache_clear()
    monkeypatch.setattr(compiled_search, "MAX_CELLS", 0)
    try:
        outcome = search(case.constants, states).outcome
    finally:
        compiled_search.compiled_search.cache_clear()
    assert not bool(((outcome == Outcome.CLEARED) & ~whole).any())
    assert bool((outcome == Outcome.SPENT).any())


#: A coordinate, and thresholds at which no bound clears it, the sharp bounds alone, and the plain ones too.
#: The largest deviation that a search has seen is 7.738476e-6.
BETWEEN = (0xB1D995A1, 0x2502BF0B, 0xB1D8963A, 0x250CCD1C)
NONE_CLEARS, SHARP_ONES_CLEAR, ALL_CLEAR = 7.73862e-6, 7.739e-6, 7.7394e-6


@pytest.mark.parametrize("compiled", [False, True])
def test_what_the_search_leaves_is_searched_with_sharper_bounds(
    compiled: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every such coordinate, wherever it lies between others: here in the first and last places of blocks of two."""
    case = Setting().case()
    between = torch.tensor(BETWEEN, dtype=torch.int64).to(torch.int32).view(torch.float32)
    unsafe = between * torch.tensor([1, 1, 2, 1])
    same = between[[0, 1, 0, 1]]
    rows = [between, same, between, unsafe, between, unsafe, same, between, between]
    states = States(*torch.stack(rows).T.contiguous())
    wanted = [row is not unsafe for row in rows]
    monkeypatch.setattr(exact, "_TORCH_BLOCK", 2)

    def claim(allowed: float) -> GuardConstants[float]:
        return case.constants._replace(threshold=allowed)

    searched = cleared(claim(SHARP_ONES_CLEAR), states).cleared
    assert searched.tolist() == [row is same for row in rows]
    assert exact_guard(claim(SHARP_ONES_CLEAR), *states, compiled=compiled).tolist() == wanted
    assert exact_guard(claim(ALL_CLEAR), *states, compiled=compiled).tolist() == wanted
    assert exact_guard(claim(NONE_CLEARS), *states, compiled=compiled).tolist() == [row is same for row in rows]


def test_outside_the_domain_nothing_is_accepted() -> None:
    case = Setting(tolerance=1e6).case()
    odd = torch.tensor([math.nan, INF, -INF, -0.0, 3e38])
    m, v = torch.full((5,), 1e-4), torch.full((5,), 1e-7)

    assert not bool(exact_guard(case.constants, odd, v, odd, v).any())
    assert not bool(exact_guard(case.constants, m, odd, m, odd).any())
    assert not bool(exact_guard(case.constants, m, -v, m, -v).any())
    assert bool(exact_guard(case.constants, m, v, m, v).all())


def test_no_coordinates() -> None:
    case = Setting().case()

    assert exact_guard(case.constants, *[torch.empty(0)] * 4).tolist() == []
