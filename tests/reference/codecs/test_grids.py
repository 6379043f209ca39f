"""Grids: which are grids at all, how a range is fitted into the format, and the search that chooses one."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.guard.cases import Setting
from tests.strategies import LARGEST_FINITE, NAN, floats_of
from torch import Tensor

from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.grids import Guard, choose_grids
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.tables import levels
from guarded_moments.reference.errors import FormatError

RESOLUTION = 2.0**-16
NARROWEST = 2.0**-14
LOWEST, HIGHEST = -126.0, 127.5


def near(m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """A guard for the search alone: both moments within one percent."""
    return ((m_hat - m).abs() <= 0.01 * m.abs()) & ((v_hat - v).abs() <= 0.01 * v)


def rejected(grids: tuple[LogGrid, LogGrid], m: Tensor, v: Tensor, guard: Guard) -> int:
    """How many coordinates the guard rejects when each moment takes its nearest level."""
    hats = []
    for moment, grid in zip((m, v), grids, strict=True):
        index = ((moment.abs().double().log2() - grid.low) / grid.step).round().clamp(0, grid.levels - 1)
        hats.append(levels(grid)[index.long()])
    return int((~guard(m, v, hats[0] * m.sign(), hats[1])).sum())


@pytest.mark.parametrize(
    ("low", "step", "count"),
    [
        (LOWEST - RESOLUTION, 1.0, 100),
        (-200.0, 1.0, 100),
        (0.0, NARROWEST - RESOLUTION, 100),
        (0.0, 0.0, 100),
        (0.0, -1.0, 100),
        (HIGHEST - 99.0 + RESOLUTION, 1.0, 100),
        (128.0, 1.0, 1),
        (0.0, 1.5, 127),
        (0.1, 1.0, 100),
        (0.0, 0.1, 100),
        (0.0, 1.0 + RESOLUTION / 2, 100),
        (math.nan, 1.0, 100),
        (0.0, math.nan, 100),
        (math.inf, 1.0, 100),
        (-math.inf, 1.0, 100),
        (0.0, math.inf, 100),
        (1e308, 1e308, 100),
    ],
)
def test_no_grid_without_distinct_normal_levels(low: float, step: float, count: int) -> None:
    with pytest.raises(FormatError, match=r"does not give distinct normal binary32 levels"):
        LogGrid(low, step, count)


@pytest.mark.parametrize(
    ("low", "step", "count"),
    [(LOWEST, NARROWEST, 255), (HIGHEST - 99.0, 1.0, 100), (HIGHEST, NARROWEST, 1), (-0.5, RESOLUTION * 5, 2)],
)
def test_the_extreme_grids_are_grids(low: float, step: float, count: int) -> None:
    level = levels(LogGrid(low, step, count))

    assert bool((level[:-1] < level[1:]).all())


@given(
    st.floats(-400, 400) | st.sampled_from((LOWEST, HIGHEST)),
    st.floats(-400, 400) | st.sampled_from((LOWEST, HIGHEST)),
    st.sampled_from((2, M_LEVELS, V_LEVELS)),
)
def test_any_range_gives_a_grid_that_reaches_it_as_far_as_the_format_does(low: float, high: float, count: int) -> None:
    grid = LogGrid.spanning(low, high, count)

    assert grid.levels == count
    assert LOWEST <= grid.low <= grid.exponent(count - 1) <= HIGHEST
    if LOWEST <= low <= HIGHEST - 1 and low + 2 * NARROWEST * count <= high <= HIGHEST:
        assert low - RESOLUTION <= grid.low <= low
        assert high - (count + 1) * RESOLUTION <= grid.exponent(count - 1) <= high + 1e-12  # in binary64


@given(st.floats(-126, 100), st.floats(-126, 127), st.sampled_from((M_LEVELS, V_LEVELS)))
def test_parameters_survive_json_and_half_indices_are_exact(low: float, high: float, count: int) -> None:
    grid = LogGrid.spanning(low, high, count)

    low, step = json.loads(json.dumps([grid.low, grid.step]))
    assert LogGrid(low, step, count) == grid
    for half in range(2 * count - 1):
        whole = round(grid.low / RESOLUTION) * 2 + half * round(grid.step / RESOLUTION)
        assert grid.exponent(half / 2) == whole * RESOLUTION / 2


def heavy_tailed(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Moments of which a few are far from the rest: one range for all wastes most levels."""
    v = 2.0 ** (rng.standard_normal(count) * 3 - 30)
    v[: count // 200] *= 2.0**-60
    m = rng.standard_normal(count) * np.sqrt(v)
    return torch.from_numpy(m.astype(np.float32)), torch.from_numpy(v.astype(np.float32))


def test_the_choice_is_repeatable_and_beats_the_whole_range(rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 5000)
    whole = (
        LogGrid.spanning(float(m.abs().log2().min()), float(m.abs().log2().max()), M_LEVELS),
        LogGrid.spanning(float(v.log2().min()), float(v.log2().max()), V_LEVELS),
    )

    chosen = choose_grids(m, v, M_LEVELS, V_LEVELS, near)

    assert chosen == choose_grids(m.clone(), v.clone(), M_LEVELS, V_LEVELS, near)
    assert rejected(chosen, m, v, near) < 0.8 * rejected(whole, m, v, near)


def test_the_choice_for_the_real_guard_beats_the_whole_range(rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 5000)
    case = Setting(step=400.0).case()
    whole = (
        LogGrid.spanning(float(m.abs().log2().min()), float(m.abs().log2().max()), M_LEVELS),
        LogGrid.spanning(float(v.log2().min()), float(v.log2().max()), V_LEVELS),
    )

    chosen = choose_grids(m, v, M_LEVELS, V_LEVELS, case.guard)

    assert rejected(chosen, m, v, case.guard) < rejected(whole, m, v, case.guard)


DEGENERATE = {
    "empty": ([], []),
    "one value": ([0.25], [0.5]),
    "all equal": ([3e-4] * 70, [1e-7] * 70),
    "all zero": ([0.0] * 5, [0.0] * 5),
    "zero m": ([0.0] * 5, [1.0] * 5),
    "zero v": ([1.0] * 5, [0.0] * 5),
    "all subnormal": ([1e-45, -3e-40, 1e-42], [1e-45, 1e-44, 1e-39]),
    "all huge": ([3e38, -3.4e38], [3.4e38, 1e38]),
    "smallest and largest": ([1e-45, 3.4e38], [3.4e38, 1e-45]),
    "one of them NaN": ([math.nan, 1.0, -2.0], [1.0, 2.0, 4.0]),
    "only NaN": ([math.nan] * 3, [math.nan] * 3),
    "infinite": ([math.inf, 1.0, -math.inf], [1.0, math.inf, 2.0]),
    "negative v": ([1.0, 2.0], [-1.0, -2.0]),
}


@pytest.mark.parametrize(("m", "v"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_data_gives_grids(m: list[float], v: list[float]) -> None:
    moments = torch.tensor(m), torch.tensor(v)
    case = Setting().case()

    for guard in (near, case.guard):
        m_grid, v_grid = choose_grids(*moments, M_LEVELS, V_LEVELS, guard)
        assert (m_grid.levels, v_grid.levels) == (M_LEVELS, V_LEVELS)
        assert (m_grid, v_grid) == choose_grids(*moments, M_LEVELS, V_LEVELS, guard)


def test_what_is_not_finite_and_positive_does_not_move_the_choice(rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 500)
    odd = torch.from_numpy(floats_of([NAN, 0x7F800000, 0xFF800000, 0, 0x80000000, NAN | 1]))
    large = torch.full_like(odd, float(floats_of(LARGEST_FINITE)))

    expected = choose_grids(m, v, M_LEVELS, V_LEVELS, near)

    with_odd_m = choose_grids(torch.cat([odd, m]), torch.cat([large, v]), M_LEVELS, V_LEVELS, near)
    with_odd_v = choose_grids(torch.cat([m, large]), torch.cat([v, -odd.abs()]), M_LEVELS, V_LEVELS, near)
    assert with_odd_m == expected
    assert with_odd_v == expected
