"""The bounds by slopes: at least the exact deviation at every gradient inside, by mpmath, and of second order."""

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Case, Setting, describe, pairs, repeated, settings, trained_pairs
from tests.reference.guard.test_cells import exceeding, random_cells, upper_of
from torch import Tensor

from guarded_moments.reference.arithmetic import TorchBinary64
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import cell_slack, slopes
from guarded_moments.reference.guard.cell_slack import deviation_inflation, make_deviation_upper
from guarded_moments.reference.guard.cells import Terms, make_terms
from guarded_moments.reference.guard.closed_form import lifted
from guarded_moments.reference.guard.search import CellBounds, Cells, States
from guarded_moments.reference.guard.slopes import Point, make_point, make_slope_uppers

OP = TorchBinary64()


def terms_of(case: Case, states: States) -> Terms[Tensor]:
    return make_terms(OP)(lifted(case.constants), *(moment.double() for moment in states))


def points_of(case: Case, states: States, cells: Cells) -> tuple[Point[Tensor], Point[Tensor]]:
    k, terms = lifted(case.constants), terms_of(case, states)
    low, high = (make_point(OP)(k, terms.v, terms.v_hat, terms.gap, end.g) for end in (cells.low, cells.high))
    return low, high


def slope_upper(case: Case, states: States, cells: Cells) -> Tensor:
    terms = terms_of(case, states)
    plus, minus = make_slope_uppers(OP)(
        lifted(case.constants), terms.shift, terms.pull, *points_of(case, states, cells)
    )
    return torch.maximum(plus, minus)


def cells_above_zero(case: Case, states: States, rng: np.random.Generator) -> tuple[States, Cells]:
    """Random cells whose low end is not 0, and their coordinates."""
    cells = random_cells(case, CellBounds(case.constants, states), len(states.m), rng)
    kept = cells.select(cells.low.g > 0)
    return states.select(kept.coordinate), kept._replace(coordinate=torch.arange(len(kept.coordinate)))


def test_no_gradient_inside_exceeds_the_bound(rng: np.random.Generator, budget: int) -> None:
    shares: list[float] = []
    for setting in settings(rng, 12 * budget):
        case = setting.case()
        for some in (pairs(40, rng), trained_pairs(20, rng)):
            states, cells = cells_above_zero(case, some, rng)
            wrong, used = exceeding(case, states, cells, slope_upper(case, states, cells), rng)
            assert wrong == []
            shares += used
    assert np.quantile(shares, 0.6) > 0.9, "bounds that nothing comes near to are not tested"


def test_without_its_rounding_slack_the_bound_is_exceeded(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slopes, "_relative_error", lambda: 0.0)
    wrong: list[str] = []
    for setting in settings(rng, 8):
        case = setting.case()
        states, cells = cells_above_zero(case, pairs(60, rng), rng)
        wrong += exceeding(case, states, cells, slope_upper(case, states, cells), rng)[0]
    assert wrong


def test_a_quarter_of_the_width_errs_by_a_sixteenth(rng: np.random.Generator) -> None:
    """Of second order around the worst gradient, where the first bound is of first order."""
    case = Setting(step=400.0).case()
    states = trained_pairs(200, rng)
    bounds = CellBounds(case.constants, states)
    excess: dict[str, list[float]] = {"slopes": [], "ends": []}
    for width in (2.0**-3, 2.0**-5):
        low = bounds.scale().float().double()
        high = (low * (1 + width)).float().double()
        cells = Cells(torch.arange(200), bounds.end(low), bounds.end(high))
        inside = torch.maximum(*(torch.maximum(*bounds.value(end)) for end in (cells.low, cells.high)))
        for name, upper in (("slopes", slope_upper(case, states, cells)), ("ends", upper_of(bounds, cells))):
            excess[name].append(float(((upper - inside) / inside).mean()))
    assert excess["slopes"][1] < excess["slopes"][0] / 10, excess
    assert excess["ends"][1] > excess["ends"][0] / 6, excess


def test_the_rounding_is_counted_and_small() -> None:
    assert 10 * 2.0**-53 < slopes._relative_error() < 300 * 2.0**-53
    assert 1 + 10 * 2.0**-53 < deviation_inflation() < 1 + 300 * 2.0**-53


def test_no_op_model_deviates_by_more_than_the_bound_on_a_cell(rng: np.random.Generator, budget: int) -> None:
    """Bit for bit, at gradients inside narrow and wide cells of both signs."""
    used: list[float] = []
    for setting in settings(rng, 12 * budget, unusual=False):
        case = setting.case()
        for some in (pairs(40, rng), trained_pairs(40, rng)):
            states, cells = cells_above_zero(case, some, rng)
            low, high = points_of(case, states, cells)
            real = torch.minimum(upper_of(CellBounds(case.constants, states), cells), slope_upper(case, states, cells))
            upper = make_deviation_upper(OP)(
                lifted(case.constants), real, states.m.double(), states.m_hat.double(), low, high
            )
            upper = upper * deviation_inflation()
            first, last = (end.g.float().view(torch.int32).numpy() for end in (cells.low, cells.high))
            bits = torch.from_numpy(rng.integers(first, last + 1, size=(16, len(first)), dtype=np.int32))
            g = torch.cat([bits.view(torch.float32), -bits.view(torch.float32)])
            for model in case.models:
                found = case.trajectories(model).deviations(repeated(states, len(g)), g.reshape(-1)).reshape(g.shape)
                where = (found > upper).nonzero().tolist()
                assert [
                    f"{model.name} {case.scalars}: {describe(states, i)} at {hex_of(float(g[row, i]))}"
                    for row, i in where
                ] == []
                used += (found.amax(dim=0) / upper).tolist()
    assert np.quantile(used, 0.9) > 0.9


def test_rounding_of_the_updates_is_needed_in_the_bound(rng: np.random.Generator) -> None:
    """Without it, neighbours' updates differ by more than the real-number bound."""
    case = Setting(step=400.0).case()
    states, cells = cells_above_zero(case, trained_pairs(400, rng, off=1e-6), rng)
    deviations = case.trajectories().deviations(states, cells.low.g.float())
    assert bool((deviations > slope_upper(case, states, cells) * case.constants.step * (1 + 1e-9)).any())
    assert cell_slack.deviation_inflation() > 1
