"""What a search with the sharpest bounds leaves: every gradient at which an op model violates, and few others."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Case, Setting, describe, repeated, settings, trained_pairs

from guarded_moments.oracle.exhaustive import CompiledTrajectories
from guarded_moments.oracle.worst_case.supremum import worst_cases
from guarded_moments.reference.floats import BINARY64, hex_of
from guarded_moments.reference.guard import signed_cells
from guarded_moments.reference.guard.cell_slack import deviation_inflation, deviation_roundings
from guarded_moments.reference.guard.exact import exact_guard
from guarded_moments.reference.guard.search import CellBounds, States, cleared, largest_gradient
from guarded_moments.reference.guard.signed_cells import SignedCells, uncleared


def inside(cells: SignedCells, coordinate: int, g: torch.Tensor) -> torch.Tensor:
    """Which gradients lie in a cell of the coordinate."""
    own = cells.select(cells.coordinate == coordinate)
    magnitude, negative = g.abs().double().unsqueeze(1), torch.signbit(g).unsqueeze(1)
    return ((own.low <= magnitude) & (magnitude <= own.high) & ((own.sign < 0) == negative)).any(dim=1)


def violations_outside(case: Case, states: States, cells: SignedCells, rng: np.random.Generator) -> list[str]:
    """Gradients of the claim in no cell, at which an op model exceeds the threshold."""
    wrong: list[str] = []
    last = torch.tensor(largest_gradient(case.constants)).view(torch.int32)
    for i in range(len(states.m)):
        near = cells.select(cells.coordinate == i)
        ends = torch.cat([near.low, near.high]).float().view(torch.int32)
        magnitude = torch.cat(
            [
                (ends.unsqueeze(1) + torch.arange(-4, 5, dtype=torch.int32)).reshape(-1),
                torch.from_numpy(rng.integers(0, int(last) + 1, 400).astype(np.int32)),
            ]
        ).clamp(0, int(last))
        g = torch.cat([magnitude.view(torch.float32), -magnitude.view(torch.float32)])
        g = g[~inside(cells, i, g)]
        for model in case.models:
            deviation = case.trajectories(model).deviations(repeated(states.slice(i, i + 1), len(g)), g)
            wrong += [
                f"{model.name} {case.scalars}: {describe(states, i)} at {hex_of(float(g[at]))}"
                for at in (deviation > case.constants.threshold).nonzero().flatten().tolist()
            ]
    return wrong


def contested(setting: Setting, n: int, rng: np.random.Generator) -> tuple[Case, States]:
    """Coordinates whose worst case is about at the threshold."""
    case, states = setting.case(), trained_pairs(n, rng)
    trajectories = CompiledTrajectories(case.implementation.body, case.options, case.scalars)
    median = float(worst_cases(case.constants, trajectories, states).deviation.median())
    return case._replace(constants=case.constants._replace(threshold=median)), states


def test_no_gradient_outside_of_its_cells_violates(rng: np.random.Generator, budget: int) -> None:
    left = 0
    for setting in settings(rng, budget, unusual=False):
        case, states = contested(setting, 8, rng)
        found = uncleared(case.constants, states, shortest=64)
        assert violations_outside(case, states, found.cells, rng) == []
        left += len(found.cells.coordinate.unique())
    assert left > 0, "a search that leaves nothing is not tested"


def test_cells_that_allow_a_thousandth_too_much_are_noticed(rng: np.random.Generator) -> None:
    case, states = contested(Setting(step=400.0), 12, rng)
    generous = case.constants._replace(threshold=1.001 * case.constants.threshold)
    assert violations_outside(case, states, uncleared(generous, states, shortest=64).cells, rng)


def test_out_of_budget_the_cells_still_hold_every_violation(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_cells, "MAX_ROUNDS", 3)
    case, states = contested(Setting(step=400.0), 12, rng)
    found = uncleared(case.constants, states, shortest=64)
    assert bool(found.spent.any())
    assert violations_outside(case, states, found.cells, rng) == []


def test_within_budget_every_cell_left_is_short_or_exceeds_at_both_ends(rng: np.random.Generator) -> None:
    """One coordinate at a time, so that its last cell is the last of the search."""
    case, states = contested(Setting(step=400.0), 12, rng)
    for i in range(len(states.m)):
        one = states.slice(i, i + 1)
        found, bounds = uncleared(case.constants, one, shortest=64), signed_cells._SignedBounds(case.constants, one)
        ends = [found.cells._replace(high=found.cells.low), found.cells._replace(low=found.cells.high)]
        exceeds = torch.stack([bounds.highest(end) > case.constants.threshold for end in ends]).all(dim=0)
        assert bool(((found.cells.floats_inside <= 64) | exceeds).all()), describe(states, i)
        assert not bool(found.spent.any()), describe(states, i)


def test_the_exact_guard_accepts_what_only_the_sharper_bounds_clear(rng: np.random.Generator) -> None:
    """Thresholds between the worst case and what the slack of any gradient leaves."""
    setting = Setting(step=100_000.0)
    case, states = setting.case(), trained_pairs(24, rng)
    trajectories = CompiledTrajectories(case.implementation.body, case.options, case.scalars)
    worst = worst_cases(case.constants, trajectories, states).deviation
    gained = 0
    for i in range(len(states.m)):
        one = states.slice(i, i + 1)
        for share in (2.0**-14, 2.0**-12, 2.0**-10, 2.0**-8):
            constants = case.constants._replace(threshold=float(worst[i]) * (1 + share))
            accepted = bool(exact_guard(constants, *one))
            gained += accepted and not bool(cleared(constants, one).cleared)
        below = case.constants._replace(threshold=math.nextafter(float(worst[i]), 0.0))
        assert not bool(exact_guard(below, *one)), describe(states, i)
    assert gained > 0


def test_the_value_found_is_attained_at_its_gradient(rng: np.random.Generator) -> None:
    case, states = contested(Setting(step=400.0), 12, rng)
    found = uncleared(case.constants, states, shortest=64)
    bounds = CellBounds(case.constants, states)
    plus, minus = bounds.value(bounds.end(found.gradient.abs()))
    attained = torch.where(torch.signbit(found.gradient), minus, plus) * case.constants.step
    assert bool((found.gradient != 0).any()), "no coordinate is worst at a gradient"
    assert [describe(states, i) for i in (attained != found.value).nonzero().flatten().tolist()] == []


def test_the_bound_by_slopes_is_asked_above_zero_alone(rng: np.random.Generator) -> None:
    """It is derived for cells whose low end is a positive gradient."""
    case, states = contested(Setting(step=400.0), 6, rng)
    bounds = signed_cells._SignedBounds(case.constants, states)
    sixes = torch.ones(6, dtype=torch.float64)
    from_zero = SignedCells(torch.arange(6), sixes, 0 * sixes, 1e-4 * sixes)
    above = from_zero._replace(low=1e-5 * sixes)
    before = bounds.highest(from_zero), bounds.highest(above)
    bounds._by_slopes = lambda *_: (-1e3 * sixes, -1e3 * sixes)
    assert torch.equal(bounds.highest(from_zero), before[0])
    assert bool((bounds.highest(above) < before[1]).all())


def test_the_bound_is_multiplied_by_its_inflation(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    case, states = contested(Setting(step=400.0), 6, rng)
    bounds, sixes = signed_cells._SignedBounds(case.constants, states), torch.ones(6, dtype=torch.float64)
    cells, highest = SignedCells(torch.arange(6), sixes, 1e-5 * sixes, 1e-4 * sixes), []
    for inflation in (1.0, 4.0):
        monkeypatch.setattr(signed_cells, "deviation_inflation", lambda inflation=inflation: inflation)
        highest.append(bounds.highest(cells))
    assert torch.equal(highest[1], 4 * highest[0])


def test_the_inflation_is_for_every_rounding_of_the_bound_and_of_its_product() -> None:
    """What the proof assumes of it: `1 <= inflation*t**k`."""
    t = 1 - BINARY64.unit_roundoff
    assert Fraction(deviation_inflation()) * t ** (deviation_roundings() + 1) >= 1


def test_no_coordinates() -> None:
    case = Setting(step=400.0).case()
    nothing = States(*(torch.empty(0) for _ in range(4)))
    assert len(uncleared(case.constants, nothing, shortest=64).cells.coordinate) == 0
    assert exact_guard(case.constants, *nothing).shape == (0,)
