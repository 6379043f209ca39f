"""The bound over a cell of gradients is at least the exact deviation at every gradient inside, by mpmath."""

import mpmath
import numpy as np
import pytest
import torch
from tests.reference.guard.cases import (
    PRECISION,
    Case,
    describe,
    exact_deviation,
    pairs,
    settings,
    trained_pairs,
)
from torch import Tensor

from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import cells as cells_module
from guarded_moments.reference.guard.cells import End
from guarded_moments.reference.guard.search import CellBounds, Cells, States, largest_gradient


def random_cells(case: Case, bounds: CellBounds, count: int, rng: np.random.Generator) -> Cells:
    """One cell for each coordinate, from two neighbours to all of the claim.

    From zero, around where the denominator bends, anywhere, up to the bound.
    """
    last = largest_gradient(case.constants)
    scale = bounds.scale().numpy()
    anywhere = 2.0 ** rng.uniform(-149, np.log2(last), count)
    low = np.choose(rng.integers(3, size=count), (np.zeros(count), scale * 2.0 ** rng.uniform(-8, 8, count), anywhere))
    low = np.minimum(low, last * 0.999).astype(np.float32)
    neighbour = np.nextafter(low, np.float32(np.inf)).astype(np.float64)
    longer = low * (1 + 2.0 ** rng.uniform(-20, 10, count)) + np.where(low == 0, scale, 0)
    high = np.choose(rng.integers(4, size=count), (neighbour, longer, longer, np.full(count, last)))
    high = np.clip(high.astype(np.float32), neighbour, last).astype(np.float32)
    ends = [torch.from_numpy(end).double() for end in (low, high)]
    return Cells(torch.arange(count), *(bounds.end(end) for end in ends))


def upper_of(bounds: CellBounds, cells: Cells) -> Tensor:
    return bounds.upper(cells.low, cells.high, cells.coordinate)


def inside(low: float, high: float, rng: np.random.Generator) -> list[float]:
    """Both ends of a cell and some binary32 values between, even in value and even in the logarithm."""
    bits = np.array([low, high], dtype=np.float32).view(np.int32)
    ordinals: list[float] = rng.integers(bits[0], bits[1] + 1, size=2, dtype=np.int32).view(np.float32).tolist()
    values: list[float] = rng.uniform(low, high, 2).astype(np.float32).clip(low, high).tolist()
    return [low, high, *ordinals, *values]


def exceeding(
    case: Case, states: States, cells: Cells, upper: Tensor, rng: np.random.Generator
) -> tuple[list[str], list[float]]:
    """The cells with a gradient above their bound, and for each cell the largest exact deviation over its bound."""
    wrong, shares = [], []
    coordinates = list(zip(*(moment.tolist() for moment in states), strict=True))
    with mpmath.workprec(PRECISION):
        for i, (low, high, bound) in enumerate(
            zip(cells.low.g.tolist(), cells.high.g.tolist(), upper.tolist(), strict=True)
        ):
            most = mpmath.mpf(0)
            for magnitude in inside(low, high, rng):
                for g in (magnitude, -magnitude):
                    exact = exact_deviation(case.real, coordinates[i], g)
                    most = max(most, exact)
                    if exact > bound:
                        wrong.append(
                            f"{case.scalars}: {describe(states, i)}, cell {hex_of(low)} to {hex_of(high)}:"
                            f" bound {bound!r}, but {float(exact)!r} at g = {hex_of(g)}"
                        )
            shares.append(float(most / bound) if bound else 1.0)
    return wrong, shares


def test_no_gradient_inside_exceeds_the_bound(rng: np.random.Generator, budget: int) -> None:
    shares: list[float] = []
    for setting in settings(rng, 12 * budget):
        case = setting.case()
        for states in (pairs(40, rng), trained_pairs(20, rng)):
            bounds = CellBounds(case.constants, states)
            cells = random_cells(case, bounds, len(states.m), rng)
            wrong, used = exceeding(case, states, cells, upper_of(bounds, cells), rng)
            assert wrong == []
            shares += used
    assert np.quantile(shares, 0.4) > 0.9, "bounds that nothing comes near to are not tested"


def test_cells_of_one_gradient_are_exact_but_for_their_slack(rng: np.random.Generator) -> None:
    """With both ends the same, what is left between value and bound is the rounding that is allowed for."""
    for setting in settings(rng, 12):
        case = setting.case()
        states = pairs(60, rng)
        bounds = CellBounds(case.constants, states)
        cells = random_cells(case, bounds, 60, rng)
        point = cells._replace(high=cells.low)
        wrong, _ = exceeding(case, states, point, upper_of(bounds, point), rng)
        assert wrong == []


def test_without_its_rounding_slack_the_bound_is_exceeded(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "_relative_error", lambda: 0.0)
    wrong: list[str] = []
    for setting in settings(rng, 8):
        case = setting.case()
        states = pairs(60, rng)
        bounds = CellBounds(case.constants, states)
        cells = random_cells(case, bounds, 60, rng)
        wrong += exceeding(case, states, cells, upper_of(bounds, cells), rng)[0]
    assert wrong


def test_the_slack_is_counted_and_small() -> None:
    assert 10 * 2.0**-53 < cells_module._relative_error() < 200 * 2.0**-53


def test_rows_of_gradients_are_bounded_as_the_cells_between_them(rng: np.random.Generator) -> None:
    for setting in settings(rng, 10):
        case = setting.case()
        bounds = CellBounds(case.constants, pairs(30, rng))
        last = largest_gradient(case.constants)
        g = (bounds.scale() * torch.tensor([[0.0], [0.5], [2.0], [100.0]])).clamp(max=last).float().double()
        ends = bounds.end(g)
        rows = bounds.upper(End(*(part[:-1] for part in ends)), End(*(part[1:] for part in ends)))
        for row in range(3):
            low, high = (End(*(part[at] for part in ends)) for at in (row, row + 1))
            assert torch.equal(rows[row], upper_of(bounds, Cells(torch.arange(30), low, high)))


def test_values_are_the_exact_deviation_within_the_counted_rounding(rng: np.random.Generator) -> None:
    for setting in settings(rng, 12):
        case = setting.case()
        states = pairs(60, rng)
        bounds = CellBounds(case.constants, states)
        end = random_cells(case, bounds, 60, rng).low
        plus, minus = bounds.value(end)
        coordinates = list(zip(*(moment.tolist() for moment in states), strict=True))
        with mpmath.workprec(PRECISION):
            for i, (m, _, m_hat, _) in enumerate(coordinates):
                size = abs(m_hat - m) * float(end.reciprocal[i])
                size += (abs(m) + float(end.g[i])) * abs(float(end.difference[i]))
                for value, gradient in ((plus[i], float(end.g[i])), (minus[i], -float(end.g[i]))):
                    off = abs(exact_deviation(case.real, coordinates[i], gradient) - float(value))
                    assert off <= cells_module._relative_error() * size, describe(states, i)


def test_identical_states_deviate_nowhere(rng: np.random.Generator) -> None:
    for setting in settings(rng, 6):
        case = setting.case()
        some = pairs(50, rng)
        states = States(some.m, some.v, some.m, some.v)
        bounds = CellBounds(case.constants, states)
        cells = random_cells(case, bounds, 50, rng)
        assert not bool(upper_of(bounds, cells).any())
