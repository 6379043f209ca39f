"""Grids: which are grids at all, how a range is fitted into the format, and many grids as one."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import LARGEST_FINITE, ONE, SMALLEST_NORMAL, wild_tensor

from guarded_moments.reference.codecs import FloatGrid, GridFamily, LogGrid
from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.grids import SpacedGrid
from guarded_moments.reference.codecs.tables import levels
from guarded_moments.reference.errors import FormatError

RESOLUTION = 2.0**-16
NARROWEST = 2.0**-14
LOWEST, HIGHEST = -126.0, 127.5


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
    assert grid.origin % LogGrid.origin_unit == grid.pitch % LogGrid.pitch_unit == 0
    if LOWEST <= low <= HIGHEST - 1 and low + 2 * NARROWEST * count <= high <= HIGHEST:
        assert low - 2.0**-7 <= grid.low <= low
        assert high - count * NARROWEST <= grid.exponent(count - 1) <= high + 1e-12  # in binary64


@given(st.floats(-140, 130), st.floats(-140, 130), st.sampled_from((2, M_LEVELS, V_LEVELS)))
def test_any_range_gives_a_grid_of_floats(low: float, high: float, count: int) -> None:
    grid = FloatGrid.spanning(low, high, count)
    bits = grid.level(torch.arange(count)).view(torch.int32).tolist()

    assert bits == [grid.base + i * grid.step for i in range(count)]
    assert SMALLEST_NORMAL <= bits[0] <= bits[-1] <= LARGEST_FINITE
    assert grid.origin % FloatGrid.origin_unit == grid.pitch % FloatGrid.pitch_unit == 0
    if LOWEST + 1 <= low <= HIGHEST - 1 and low + 1 <= high <= HIGHEST:
        level = grid.level(torch.tensor([0, count - 1])).double().log2()
        assert low - 2.0**-6 <= float(level[0]) <= low + 1e-6
        assert high - count * 2.0**-12 <= float(level[1]) <= high + 1e-6


@pytest.mark.parametrize(
    ("base", "step", "count"),
    [
        (SMALLEST_NORMAL - 1, 1, 2),
        (0, 1 << 20, 127),
        (ONE, 0, 2),
        (ONE, -1, 2),
        (LARGEST_FINITE - 254, 1, 256),
        (1.0e9, 1 << 20, 2),
        (ONE, 2.5, 2),
        (True, True, 2),
    ],
)
def test_no_grid_of_floats_without_distinct_normal_levels(base: int, step: int, count: int) -> None:
    with pytest.raises(FormatError, match=r"does not give distinct normal binary32 levels"):
        FloatGrid(base, step, count)


@pytest.mark.parametrize("kind", [LogGrid, FloatGrid])
def test_a_family_is_its_members(kind: type[SpacedGrid], rng: np.random.Generator) -> None:
    ends = [(-40.0, -3.0), (-126.0, 127.5), (-20.0, -19.9), (-126.0, -125.0), (100.0, 127.5)]
    single = [kind.spanning(low, high, V_LEVELS) for low, high in ends]
    origins, pitches = (torch.tensor(x) for x in zip(*((g.origin, g.pitch) for g in single), strict=True))
    family = GridFamily(kind, origins, pitches, V_LEVELS, 1000)
    magnitude = wild_tensor(4700, rng).abs()
    magnitude[~magnitude.isfinite()] = 0
    places = [g.level(torch.arange(V_LEVELS)).view(torch.int32) for g in single]
    for group, bits in enumerate(places):  # levels and what is beside them, in their own groups
        near = torch.cat([bits - 1, bits, bits + 1])[:1000].view(torch.float32)
        magnitude[1000 * group : 1000 * group + len(near)][: 4700 - 1000 * group] = near[: 4700 - 1000 * group]

    index = family.nearest(magnitude)

    for group, grid in enumerate(single):
        part = slice(1000 * group, 1000 * group + 1000)
        assert family.member(group) == grid
        assert torch.equal(index[part], grid.nearest(magnitude[part]))
        assert torch.equal(family.level(index)[part], grid.level(index[part]))
    for start, stop in ((0, 1), (999, 1001), (2500, 4700)):
        assert torch.equal(family.nearest(magnitude[start:stop], start), index[start:stop])
        assert torch.equal(family.level(index[start:stop], start), family.level(index)[start:stop])


def test_a_family_of_no_grids_is_refused() -> None:
    one = torch.tensor([ONE])
    for origins, pitches, size in ((one[:0], one[:0], 4), (one, one[:0], 4), (one, one, 0), (one, -one, 4)):
        with pytest.raises(FormatError):
            GridFamily(FloatGrid, origins, pitches, V_LEVELS, size)


@given(st.floats(-126, 100), st.floats(-126, 127), st.sampled_from((M_LEVELS, V_LEVELS)))
def test_parameters_survive_json_and_half_indices_are_exact(low: float, high: float, count: int) -> None:
    grid = LogGrid.spanning(low, high, count)

    low, step = json.loads(json.dumps([grid.low, grid.step]))
    assert LogGrid(low, step, count) == grid
    for half in range(2 * count - 1):
        whole = round(grid.low / RESOLUTION) * 2 + half * round(grid.step / RESOLUTION)
        assert grid.exponent(half / 2) == whole * RESOLUTION / 2
