"""The closed form is at least every deviation that the bit-exact op model has, and each of its parts is needed."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from tests.docs.documents import ROOT
from tests.reference.guard.cases import (
    PRECISION,
    Case,
    Setting,
    describe,
    pairs,
    sampled_worst,
    settings,
    trained_pairs,
)
from tests.strategies import floats_of
from torch import Tensor

from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic import RoundingCount, TorchBinary64
from guarded_moments.reference.arithmetic.rounding_count import inflation
from guarded_moments.reference.floats import BINARY64
from guarded_moments.reference.guard import closed_form, closed_form_deviation, closed_form_guard, in_domain
from guarded_moments.reference.guard.closed_form import (
    BoundTerms,
    bound_inflation,
    make_bound_terms,
    make_deviation_bound,
)
from guarded_moments.reference.guard.constants import GuardConstants, counted_constants
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT
from guarded_moments.reference.guard.search import States

INF, NAN = math.inf, math.nan
#: Larger than any cap of the third term that matters, and finite, so that times zero it is zero.
HUGE = 1e300


def both(first: States, second: States) -> States:
    return States(*(torch.cat(moments) for moments in zip(first, second, strict=True)))


def shortfalls(case: Case, states: States, per: int, constants: GuardConstants[float] | None = None) -> list[str]:
    """The coordinates with a gradient at which the op model deviates by more than the bound, in bits."""
    bound = closed_form_deviation(constants or case.constants, *states)
    assert not bool(bound.isnan().any())
    worst, at = sampled_worst(case, states, per)
    return [
        f"{case.implementation.name} {case.scalars}: {describe(states, i)}: bound {float(bound[i])!r}, but"
        f" {float(worst[i])!r} at g = {float(at[i]).hex()}"
        for i in (~(worst <= bound)).nonzero().flatten().tolist()
    ]


def test_no_gradient_deviates_by_more_than_the_bound(rng: np.random.Generator, budget: int) -> None:
    for setting in settings(rng, 60 * budget):
        case = setting.case()
        states = both(pairs(50, rng), trained_pairs(20, rng))
        assert shortfalls(case, states, 200) == []


def near_the_bound() -> Iterator[tuple[Setting, int]]:
    """Claims in which each part of the bound decides for some coordinate, and how many pairs to try."""
    yield Setting(betas=(0.9, 0.999), step=400.0), 200
    yield Setting(betas=(0.5, 0.9), step=10.0), 200
    yield Setting(betas=(0.9, 0.999), step=10.0, lr=1e-40, eps=1e-6), 250
    yield Setting(betas=(0.9, 0.999), step=1e5, lr=2e-44, eps=1e-3), 200
    yield Setting(betas=(0.95, 0.98), step=1.0, bound=INF), 200


def without(term: str) -> Callable[..., Callable[..., BoundTerms[Tensor]]]:
    """`make_bound_terms` of a bound with one term dropped."""

    def make(op: TorchBinary64, jit: Jit = as_is) -> Callable[..., BoundTerms[Tensor]]:
        complete = make_bound_terms(op, jit)

        def dropped(*arguments: Any) -> BoundTerms[Tensor]:  # noqa: ANN401 - as the original's
            terms = complete(*arguments)
            return terms._replace(**{term: torch.zeros_like(getattr(terms, term))})

        return dropped

    return make


@pytest.mark.parametrize("term", [None, *BoundTerms._fields])
def test_dropping_any_term_is_noticed(
    term: str | None, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    if term is not None:
        monkeypatch.setattr(closed_form, "make_bound_terms", without(term))
    found = []
    for setting, count in near_the_bound():
        found += shortfalls(setting.case(), pairs(count, rng), 60)
    assert bool(found) == (term is not None)


@pytest.mark.parametrize("field", ["slack_moment", "slack_reciprocal", "slack_gradient", "slack_floor"])
def test_dropping_any_part_of_the_rounding_slack_is_noticed(field: str, rng: np.random.Generator) -> None:
    found = []
    for setting, count in near_the_bound():
        case = setting.case()
        found += shortfalls(case, pairs(count, rng), 60, case.constants._replace(**{field: 0.0}))
    assert found


@pytest.mark.parametrize("kept", ["gradient_bound", "gap_cap", "radicand_cap", "root_cap", "eps_cap"])
def test_each_of_the_five_bounds_on_the_third_term_holds_alone(
    kept: str, rng: np.random.Generator, budget: int
) -> None:
    caps = {"gradient_bound", "gap_cap", "radicand_cap", "root_cap", "eps_cap"} - {kept}
    for setting in settings(rng, 15 * budget):
        case = setting.case()
        alone = case.constants._replace(**dict.fromkeys(caps, HUGE))
        assert shortfalls(case, pairs(50, rng), 100, alone) == []


@pytest.mark.parametrize("cut", ["gradient_bound", "gap_cap", "radicand_cap", "root_cap", "eps_cap"])
def test_each_of_the_five_bounds_decides_somewhere_and_halving_it_is_noticed(
    cut: str, rng: np.random.Generator
) -> None:
    zeros, grid = torch.zeros(60), torch.exp2(torch.arange(60) - 60.0)
    far_apart = States(zeros, torch.cat([zeros[:30], grid[:30]]), zeros, torch.cat([grid[:30], grid[30:]]))
    found = []
    for setting in (
        Setting(betas=(0.5, 0.9), bound=1e-6, step=400.0),
        Setting(betas=(0.9, 0.999), bound=INF, step=400.0),
        Setting(betas=(0.95, 0.98), bound=INF, step=10.0, eps=1e-2),
    ):
        case = setting.case()
        halved = case.constants._replace(**{cut: 0.5 * getattr(case.constants, cut)})
        found += shortfalls(case, both(both(pairs(300, rng), trained_pairs(200, rng, off=1.0)), far_apart), 60, halved)
    assert found


def test_accepted_pairs_are_never_unsafe(rng: np.random.Generator, budget: int) -> None:
    accepted_in_all = 0
    for setting in settings(rng, 40 * budget):
        case = setting.case()
        states = both(pairs(60, rng), trained_pairs(120, rng))
        # Half of what has a chance is accepted, much of it by a little, one by a billionth: at equality the search,
        # which has a rounding of its own, would have to ask about every gradient.
        bound = closed_form_deviation(case.constants, *states)
        threshold = float(bound[bound > 4 * case.constants.slack_gradient * case.constants.step].median()) * (1 + 1e-9)
        constants = case.constants._replace(threshold=threshold)
        accepted = closed_form_guard(constants, *states)
        assert bool((accepted & (bound > 0.8 * threshold)).any())
        different = ~((states.m == states.m_hat) & (states.v == states.v_hat))
        chosen = states.select(accepted & different)
        accepted_in_all += len(chosen.m)
        for model in case.models:
            verdict = decide(constants, case.trajectories(model), chosen).verdict
            bad = (verdict != Verdict.SAFE).nonzero().flatten().tolist()
            assert [f"{model.name} {constants}: {describe(chosen, i)}" for i in bad] == []
    assert accepted_in_all > 1000 * budget


def mp_bound(case: Case, m: float, v: float, m_hat: float, v_hat: float) -> mpmath.mpf:
    """The formula in high precision with the exact constants, slack constants apart."""
    k = case.constants
    w, complement, curvature, beta2, b, eps, step = (mpmath.mpf(x.numerator) / x.denominator for x in case.real)
    m, v, m_hat, v_hat = map(mpmath.mpf, (m, v, m_hat, v_hat))
    q = mpmath.sqrt(curvature) / b
    root, root_hat = mpmath.sqrt(beta2 * v) / b, mpmath.sqrt(beta2 * v_hat) / b
    h, h_hat = 1 / (root + eps), 1 / (root_hat + eps)
    low, high = min(root, root_hat), max(root, root_hat)
    gap = high**2 - low**2
    caps = [k.gradient_bound * abs(h - h_hat), (high - low) / (q * (high + eps)), gap * h * h_hat / (2 * q)]
    if low > 0:
        caps += [gap / (3 * mpmath.sqrt(3) * q * low**2), gap / (16 * q * eps * low)]
    exact = complement * abs(m_hat - m) * h_hat + complement * abs(m) * abs(h - h_hat) + w * min(caps)
    slack = sum(
        (mpmath.mpf(k.slack_moment) * abs(x) + k.slack_reciprocal) * y + k.slack_gradient
        for x, y in ((m, h), (m_hat, h_hat))
    )
    return step * (exact + slack) + 2 * mpmath.mpf(k.slack_floor)


def test_the_inflated_evaluation_is_at_least_the_formula_and_barely_more(rng: np.random.Generator, budget: int) -> None:
    for setting in settings(rng, 20 * budget):
        case = setting.case()
        states = pairs(60, rng)
        bound = closed_form_deviation(case.constants, *states).tolist()
        with mpmath.workprec(PRECISION):
            for i, coordinate in enumerate(zip(*(moment.tolist() for moment in states), strict=True)):
                exact = mp_bound(case, *coordinate)
                assert exact <= bound[i] <= exact * (1 + mpmath.mpf(2) ** -40), describe(states, i)


def test_the_inflation_is_counted() -> None:
    """About 65 operations of which the deepest path has some 30; each may take off one part in `2**53`, or three."""
    factor = Fraction(bound_inflation())

    assert inflation(0) == 1
    assert inflation(3) == (Fraction(2**53) / (2**53 - 1)) ** 3
    assert inflation(25) < factor < inflation(70)
    assert factor > 1 + Fraction(25, 2**53)


def test_the_inflation_is_for_every_rounding_of_the_bound_and_of_its_product() -> None:
    """What the proof assumes of it: `1 <= inflation*t**k`."""
    op = RoundingCount()
    count = make_deviation_bound(op)(counted_constants(), *[op.exact] * 4)
    assert Fraction(bound_inflation()) * (1 - BINARY64.unit_roundoff) ** (count + 1) >= 1


def test_a_term_more_in_the_source_is_a_larger_inflation(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bound_inflation()
    plain = closed_form.make_trajectory_slack

    def longer(op: Any, jit: Jit = as_is) -> Callable[..., Any]:  # noqa: ANN401 - of any number domain
        slack = plain(op, jit)

        def rounded_more(*arguments: Any) -> Any:  # noqa: ANN401 - as the original's
            value = slack(*arguments)
            for _ in range(30):
                value = op.add(value, value)
            return value

        return rounded_more

    monkeypatch.setattr(closed_form, "make_trajectory_slack", longer)
    bound_inflation.cache_clear()
    try:
        assert bound_inflation() > before
    finally:
        bound_inflation.cache_clear()


CASE = Setting().case()
ORDINARY = (1e-4, 1e-7)


@pytest.mark.parametrize(
    ("m", "v"),
    [
        (NAN, 1e-7),
        (1e-4, NAN),
        (INF, 1e-7),
        (-INF, 1e-7),
        (1e-4, INF),
        (1e-4, -INF),
        (1e-4, -1e-45),
        (1e-4, -1.0),
        (1e-4, -0.0),
        (-0.0, 1e-7),
        (math.nextafter(LARGEST_MOMENT, INF) * 1.0000002, 1e-7),
        (-LARGEST_MOMENT * 1.0000002, 1e-7),
        (1e-4, LARGEST_SECOND_MOMENT * 1.0000002),
        (3.4e38, 3.4e38),
    ],
)
def test_states_outside_the_domain_are_rejected_even_when_recovered_exactly(m: float, v: float) -> None:
    odd, plain = torch.tensor([[m, v], ORDINARY]).unbind(0)
    m_odd, v_odd, m_plain, v_plain = odd[0:1], odd[1:2], plain[0:1], plain[1:2]

    assert not bool(in_domain(m_odd, v_odd))
    assert not bool(CASE.guard(m_odd, v_odd, m_odd, v_odd))
    assert not bool(CASE.guard(m_plain, v_plain, m_odd, v_odd))
    assert not bool(CASE.guard(m_odd, v_odd, m_plain, v_plain))


@pytest.mark.parametrize(
    ("m", "v"),
    [(0.0, 0.0), (1e-45, 1e-45), (-1e-45, 0.0), (LARGEST_MOMENT, LARGEST_SECOND_MOMENT), (-LARGEST_MOMENT, 0.0)],
)
def test_states_at_the_ends_of_the_domain_are_accepted_when_recovered_exactly(m: float, v: float) -> None:
    first, second = torch.tensor([m]), torch.tensor([v])

    assert bool(in_domain(first, second))
    assert bool(CASE.guard(first, second, first, second))


def test_the_domain_is_the_one_that_the_theory_states() -> None:
    stated = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert "with `|m| <= 2^60` and `0 <= v <= 2^100`" in stated
    assert (LARGEST_MOMENT, LARGEST_SECOND_MOMENT) == (2.0**60, 2.0**100)


def test_nan_of_any_payload_is_outside() -> None:
    nans = torch.from_numpy(floats_of([0x7F800001, 0x7FC00000, 0xFFC12345, 0xFF800001]))

    assert not bool(in_domain(nans, torch.ones(4)).any())
    assert not bool(in_domain(torch.ones(4), nans).any())


def test_a_zero_state_recovered_as_zero_is_accepted_at_any_tolerance() -> None:
    zero = torch.zeros(1)

    assert bool(Setting(tolerance=1e-30).case().guard(zero, zero, zero, zero))


def test_the_guard_accepts_exactly_what_its_bound_allows(rng: np.random.Generator) -> None:
    for setting in settings(rng, 12):
        case = setting.case()
        states = pairs(200, rng)
        same = (states.m == states.m_hat) & (states.v == states.v_hat)
        bound = closed_form_deviation(case.constants, *states)

        for threshold in bound[:20].tolist():
            constants = case.constants._replace(threshold=threshold)
            assert torch.equal(closed_form_guard(constants, *states), (bound <= threshold) | same)
