"""The search for grids: better than the whole range, repeatable, and at a loss for nothing."""

import math

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting
from tests.strategies import LARGEST_FINITE, NAN, floats_of
from torch import Tensor

from guarded_moments.reference.codecs import FloatGrid, GridFamily, LogGrid
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.grids import Grid, SpacedGrid
from guarded_moments.reference.codecs.ranges import Guard, choose_grids


def near(m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """A guard for the search alone: both moments within one percent."""
    return ((m_hat - m).abs() <= 0.01 * m.abs()) & ((v_hat - v).abs() <= 0.01 * v)


def rejected(grids: tuple[Grid, Grid], m: Tensor, v: Tensor, guard: Guard) -> int:
    """How many coordinates the guard rejects when each moment takes its nearest level."""
    m_hat, v_hat = (grid.level(grid.nearest(x.abs())) for grid, x in zip(grids, (m, v), strict=True))
    return int((~guard(m, v, m_hat * m.sign(), v_hat)).sum())


def whole_range(kind: type[SpacedGrid], m: Tensor, v: Tensor) -> tuple[Grid, Grid]:
    """From the smallest to the largest of each moment."""
    (m_low, m_high), (v_low, v_high) = ([float(x.abs().log2().min()), float(x.abs().log2().max())] for x in (m, v))
    return kind.spanning(m_low, m_high, M_LEVELS), kind.spanning(v_low, v_high, V_LEVELS)


def heavy_tailed(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Moments of which a few are far from the rest: one range for all wastes most levels."""
    v = 2.0 ** (rng.standard_normal(count) * 3 - 30)
    v[: count // 200] *= 2.0**-60
    m = rng.standard_normal(count) * np.sqrt(v)
    return torch.from_numpy(m.astype(np.float32)), torch.from_numpy(v.astype(np.float32))


KINDS = pytest.mark.parametrize("kind", [LogGrid, FloatGrid])


@KINDS
def test_the_choice_is_repeatable_and_beats_the_whole_range(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 5000)

    chosen = choose_grids(kind, m, v, M_LEVELS, V_LEVELS, near)

    assert chosen == choose_grids(kind, m.clone(), v.clone(), M_LEVELS, V_LEVELS, near)
    assert rejected(chosen, m, v, near) < 0.8 * rejected(whole_range(kind, m, v), m, v, near)


@KINDS
def test_the_choice_for_the_real_guard_beats_the_whole_range(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 5000)
    case = Setting(step=400.0).case()

    chosen = choose_grids(kind, m, v, M_LEVELS, V_LEVELS, case.guard)

    assert rejected(chosen, m, v, case.guard) < rejected(whole_range(kind, m, v), m, v, case.guard)


@KINDS
def test_runs_that_differ_gain_from_grids_of_their_own(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 4000)
    scale = torch.exp2(torch.arange(40).repeat_interleave(100) - 20.0)
    m, v = m * scale, v * scale * scale

    one, own = (choose_grids(kind, m, v, M_LEVELS, V_LEVELS, near, size) for size in (None, 100))

    assert all(isinstance(grid, GridFamily) and len(grid.origins) == 40 for grid in own)
    assert rejected(own, m, v, near) < 0.7 * rejected(one, m, v, near)


@KINDS
def test_a_last_run_that_is_short_has_a_grid(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 1003)
    m[:100] = 0  # and a run of zeros

    grids = choose_grids(kind, m, v, M_LEVELS, V_LEVELS, near, 100)

    assert [len(grid.origins) for grid in grids if isinstance(grid, GridFamily)] == [11, 11]
    for grid, x in zip(grids, (m, v), strict=True):
        there = x[1000:].abs()
        assert torch.allclose(grid.level(grid.nearest(x.abs()))[1000:], there, rtol=0.02, atol=0), "a run of three"


def test_what_is_mostly_zero_is_judged_by_what_is_not(rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 2000)
    sparse_m, sparse_v = torch.zeros(100_000), torch.zeros(100_000)
    sparse_m[::50], sparse_v[::50] = m, v

    dense = choose_grids(LogGrid, m, v, M_LEVELS, V_LEVELS, near)
    assert choose_grids(LogGrid, sparse_m, sparse_v, M_LEVELS, V_LEVELS, near) == dense


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


@KINDS
@pytest.mark.parametrize(("m", "v"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_data_gives_grids(kind: type[SpacedGrid], m: list[float], v: list[float]) -> None:
    moments = torch.tensor(m), torch.tensor(v)
    case = Setting().case()

    for guard in (near, case.guard):
        m_grid, v_grid = choose_grids(kind, *moments, M_LEVELS, V_LEVELS, guard)
        assert (m_grid.levels, v_grid.levels) == (M_LEVELS, V_LEVELS)
        assert (m_grid, v_grid) == choose_grids(kind, *moments, M_LEVELS, V_LEVELS, guard)


def test_what_is_not_finite_and_positive_does_not_move_the_choice(rng: np.random.Generator) -> None:
    m, v = heavy_tailed(rng, 500)
    odd = torch.from_numpy(floats_of([NAN, 0x7F800000, 0xFF800000, 0, 0x80000000, NAN | 1]))
    large = torch.full_like(odd, float(floats_of(LARGEST_FINITE)))

    expected = choose_grids(LogGrid, m, v, M_LEVELS, V_LEVELS, near)

    with_odd_m = choose_grids(LogGrid, torch.cat([odd, m]), torch.cat([large, v]), M_LEVELS, V_LEVELS, near)
    with_odd_v = choose_grids(LogGrid, torch.cat([m, large]), torch.cat([v, -odd.abs()]), M_LEVELS, V_LEVELS, near)
    assert with_odd_m == expected
    assert with_odd_v == expected


@KINDS
def test_the_compiled_search_finds_what_the_plain_one_does(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    guard = CompiledClosedForm(case.constants)
    for count in (0, 1, 7, 300, 2000):
        m, v = heavy_tailed(rng, count)

        plain, compiled = (choose_grids(kind, m, v, M_LEVELS, V_LEVELS, g) for g in (guard.__call__, guard))

        if plain != compiled:  # where a bound is at the threshold, and the roots differ in a last place
            a, b = (rejected(grids, m, v, case.guard) for grids in (plain, compiled))
            assert abs(a - b) <= 0.01 * count


@KINDS
@pytest.mark.parametrize(("m", "v"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_data_gives_grids_in_compiled_code(kind: type[SpacedGrid], m: list[float], v: list[float]) -> None:
    guard = CompiledClosedForm(Setting().case().constants)

    grids = [
        choose_grids(kind, torch.tensor(m), torch.tensor(v), M_LEVELS, V_LEVELS, g) for g in (guard, guard.__call__)
    ]

    assert grids[0] == grids[1]
