"""The search encloses the supremum, looks everywhere, and its cells cover every gradient of the claim."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from tests.reference.guard.cases import (
    PRECISION,
    Case,
    Setting,
    describe,
    exact_deviation,
    gradients,
    pairs,
    sampled_worst,
    settings,
    trained_pairs,
)
from torch import Tensor

from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard import enclosure, search
from guarded_moments.reference.guard.allowance import make_update_slack
from guarded_moments.reference.guard.closed_form import lifted, make_bound_terms
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import (
    CellBounds,
    Cells,
    Outcome,
    States,
    allowance,
    first_partition,
    first_survivors,
    largest_gradient,
    slack_of,
    split,
)


def everything(best: Tensor) -> Tensor:
    """A cutoff below every bound."""
    return torch.full_like(best, -1.0)


def dense_supremum(case: Case, states: States, per: int) -> Tensor:
    """The largest real deviation over many gradients, evaluated in binary64, in units of the parameter; (n,)."""
    bounds = CellBounds(case.constants, states)
    g = gradients(case.constants, states, per)
    g = g[: len(g) // 2].double()  # `values` gives both signs
    plus, minus = bounds.value(bounds.end(g))
    return torch.maximum(plus, minus).amax(dim=0) * case.constants.step


@pytest.mark.parametrize("bound", [1e-3, 1.0, math.inf, 1e-46, 1e-45, 2e-45, 5e-39, 0.1, 3.0])
def test_the_first_cells_cover_every_gradient_of_the_claim(bound: float, rng: np.random.Generator) -> None:
    case = Setting(bound=bound).case()
    last = largest_gradient(case.constants)
    states = pairs(60, rng)
    bounds = CellBounds(case.constants, states)

    cells, _, _ = first_partition(case.constants, bounds, everything)

    assert last <= case.constants.gradient_bound
    assert float(np.nextafter(np.float32(last), np.float32(math.inf))) > case.constants.gradient_bound
    for i in range(60):
        ends = sorted(
            zip(cells.low.g[cells.coordinate == i].tolist(), cells.high.g[cells.coordinate == i].tolist(), strict=True)
        )
        if last == 0:
            assert ends == [(0, 0)], "zero is a gradient, too"
            continue
        assert ends[0][0] == 0
        assert ends[-1][1] == last
        assert all(before[1] == after[0] for before, after in pairwise(ends)), ends


def test_halves_cover_their_cell(rng: np.random.Generator) -> None:
    case = Setting(bound=math.inf).case()
    bounds = CellBounds(case.constants, pairs(100, rng))
    cells, _, _ = first_partition(case.constants, bounds, everything)
    for _ in range(40):
        cells = cells.select(cells.floats_inside > 1)
        cells = cells.select(torch.from_numpy(rng.random(len(cells.low.g)) * len(cells.low.g) < 300))
        halves, values, at = split(bounds, cells)
        count = len(cells.low.g)
        assert torch.equal(halves.low.g[:count], cells.low.g)
        assert torch.equal(halves.high.g[:count], halves.low.g[count:])
        assert torch.equal(halves.high.g[count:], cells.high.g)
        cut = halves.high.g[:count]
        assert bool(((cells.low.g < cut) & (cut < cells.high.g)).all())
        assert torch.equal(at.abs(), cut)
        assert torch.equal(cut, cut.float().double())
        assert bool((values >= 0).all())
        cells = halves


def test_survivors_are_the_coordinates_with_a_first_cell_left(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = pairs(300, rng)
    allowed = allowance(case.constants, states)

    found = first_survivors(case.constants, states, allowed)

    cells, _, _ = first_partition(case.constants, CellBounds(case.constants, states), lambda _best: allowed)
    assert found.tolist() == sorted(set(cells.coordinate.tolist()))
    assert 0 < len(found) < 300


def test_the_enclosure_brackets_a_dense_sample(rng: np.random.Generator, budget: int) -> None:
    for setting in settings(rng, 14 * budget):
        case = setting.case()
        for states in (pairs(30, rng), trained_pairs(30, rng)):
            found = enclose(case.constants, states)
            dense = dense_supremum(case, states, 200)
            assert bool((found.lower <= found.upper).all())
            assert bool((dense <= found.upper).all()), describe(states, int((dense > found.upper).nonzero()[0]))
            # The search sees at least what it can be sure of.
            missed = dense * (1 - 1.01e-4) > found.lower
            assert not bool(missed.any()), describe(states, int(missed.nonzero()[0]))
            assert bool((found.upper <= found.lower * (1 + 1.01e-4)).all())


def test_the_lower_end_is_attained_at_its_gradient(rng: np.random.Generator) -> None:
    for setting in settings(rng, 12):
        case = setting.case()
        states = trained_pairs(50, rng)
        found = enclose(case.constants, states)
        assert torch.equal(found.gradient, found.gradient.float().double())
        assert bool((found.gradient.abs() <= case.constants.gradient_bound).all())
        coordinates = zip(*(moment.tolist() for moment in states), strict=True)
        with mpmath.workprec(PRECISION):
            for i, coordinate in enumerate(coordinates):
                exact = exact_deviation(case.real, coordinate, float(found.gradient[i])) * case.constants.step
                assert float(found.lower[i]) <= exact, describe(states, i)
                assert float(exact) == pytest.approx(float(found.lower[i]), rel=1e-6), describe(states, i)


def test_no_lower_end_is_above_what_is_attained(rng: np.random.Generator, budget: int) -> None:
    """Of states where everything cancels and of all others: as evaluated, without the allowance, some are."""
    evaluated = 0
    for setting in settings(rng, 8 * budget):
        case = setting.case()
        states = pairs(40, rng)
        found, bounds = enclose(case.constants, states), CellBounds(case.constants, states)
        values = torch.maximum(*bounds.value(bounds.end(found.gradient.abs()))) * case.constants.step
        coordinates = zip(*(moment.tolist() for moment in states), strict=True)
        with mpmath.workprec(PRECISION):
            for i, coordinate in enumerate(coordinates):
                exact = exact_deviation(case.real, coordinate, float(found.gradient[i])) * case.constants.step
                assert float(found.lower[i]) <= exact, f"{describe(states, i)} at {float(found.gradient[i])!r}"
                evaluated += float(values[i]) > exact
    assert evaluated > 0


def test_a_finer_gap_gives_a_finer_enclosure(rng: np.random.Generator) -> None:
    case = Setting(step=400.0, bound=math.inf).case()
    states = trained_pairs(60, rng)

    coarse, fine = (enclose(case.constants, states, relative_gap=gap) for gap in (0.1, 1e-5))

    assert bool((fine.upper <= fine.lower * (1 + 1.1e-5)).all())
    assert bool((coarse.lower <= fine.upper).all())
    assert bool((fine.lower <= coarse.upper).all())


def test_what_is_ignored_still_has_an_upper_end(rng: np.random.Generator) -> None:
    for setting in settings(rng, 8):
        case = setting.case()
        states = trained_pairs(100, rng)
        dense = dense_supremum(case, states, 200)
        floor = float(dense.median())
        found = enclose(case.constants, states, ignore_below=floor)
        assert bool((dense <= found.upper).all())
        assert bool((found.upper >= floor).all()), "what is ignored is not refined"
        large = dense > floor
        assert bool((found.lower[large] >= dense[large] * (1 - 1.01e-4)).all())


def test_cells_are_split_until_their_ends_are_neighbours(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a claim with the gradients of nine magnitudes, and a gap that no bound closes."""
    case, widths = Setting(step=400.0, bound=8 * 2.0**-149).case(), set[int]()

    def watched(bounds: CellBounds, cells: Cells) -> tuple[Cells, Tensor, Tensor]:
        widths.update(cells.floats_inside.tolist())
        return split(bounds, cells)

    monkeypatch.setattr(enclosure, "split", watched)
    enclose(case.constants, trained_pairs(20, rng), relative_gap=0.0)
    assert min(widths) == 2, widths


def test_out_of_rounds_the_upper_end_is_still_one(rng: np.random.Generator) -> None:
    for setting in settings(rng, 8):
        case = setting.case()
        states = pairs(100, rng)
        dense = dense_supremum(case, states, 200)
        for rounds in (0, 1, 3):
            assert bool((dense <= enclose(case.constants, states, rounds=rounds).upper).all())


def test_slack_and_allowance_leave_no_gradient_above_the_threshold(rng: np.random.Generator, budget: int) -> None:
    """Where the real supremum is within the allowance, the bit-exact deviation is within the threshold."""
    for setting in settings(rng, 10 * budget):
        case = setting.case()
        states = pairs(50, rng)
        worst, _ = sampled_worst(case, states, 80)
        slack = slack_of(case.constants, states)
        upper = enclose(case.constants, states).upper
        assert bool((worst <= upper + slack).all()), describe(states, int((worst > upper + slack).nonzero()[0]))
        inside = upper / case.constants.step <= allowance(case.constants, states)
        assert bool((worst[inside] <= case.constants.threshold).all())


def test_the_search_allows_for_the_rounding_that_the_closed_form_does(rng: np.random.Generator) -> None:
    op = TorchBinary64()
    for setting in settings(rng, 6):
        constants = setting.case().constants
        states, held = [moment.double() for moment in pairs(200, rng)], lifted(constants)
        slack = make_update_slack(op)(held, *states)
        rounding = make_bound_terms(op)(held, *states).rounding
        assert torch.equal(slack, constants.step * rounding + (constants.slack_floor + constants.slack_floor))


def test_the_slack_is_multiplied_by_the_inflation_of_the_bound(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants, states, slack = Setting().case().constants, pairs(200, rng), []
    for factor in (1.0, 4.0):
        monkeypatch.setattr(search, "bound_inflation", lambda factor=factor: factor)
        slack.append(slack_of(constants, states))
    assert torch.equal(slack[1], 4 * slack[0])


def test_outcomes_are_told_apart() -> None:
    assert len({int(outcome) for outcome in Outcome}) == len(Outcome.__members__) == 3


def test_no_coordinates() -> None:
    case = Setting().case()
    none = States(*[torch.empty(0)] * 4)

    found = enclose(case.constants, none)

    assert [len(part) for part in found] == [0, 0, 0]
