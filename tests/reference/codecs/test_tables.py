"""Every entry of a grid's two tables is the correctly rounded one, checked at a precision that leaves no doubt.

The expectation is made with integers from a power of two at 500 bits, where the tables are built at 100.  That the
check sees one unit in the last place is shown by moving each entry by one.
"""

import math
from decimal import Decimal, localcontext

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import ONE, SMALLEST_NORMAL
from torch import Tensor

from guarded_moments.reference.codecs import LogGrid, tables
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.tables import levels, thresholds
from guarded_moments.reference.floats import LARGEST_FINITE_BITS, from_bits, hex_of

PRECISION = 500
FRACTION_BITS = 23
RESOLUTION = 2.0**-16
NARROWEST = 2.0**-14
LOWEST, HIGHEST = -126.0, 127.5

#: Of a trained tensor; narrow and wide; at both ends of the format; whole and half octaves, whose powers are exact.
GRIDS = {
    "trained m": LogGrid(-23.6123046875, 0.1338348388671875, M_LEVELS),
    "trained v": LogGrid(-47.0419921875, 0.1338348388671875, V_LEVELS),
    "narrowest, lowest": LogGrid(LOWEST, NARROWEST, V_LEVELS),
    "narrowest, around 1": LogGrid(-127 * NARROWEST, NARROWEST, V_LEVELS),
    "narrowest, highest": LogGrid(HIGHEST - (V_LEVELS - 1) * NARROWEST, NARROWEST, V_LEVELS),
    "widest m": LogGrid(LOWEST, math.floor((HIGHEST - LOWEST) / (M_LEVELS - 1) / RESOLUTION) * RESOLUTION, M_LEVELS),
    "widest v": LogGrid(LOWEST, math.floor((HIGHEST - LOWEST) / (V_LEVELS - 1) / RESOLUTION) * RESOLUTION, V_LEVELS),
    "whole octaves": LogGrid(-100.0, 1.0, M_LEVELS),
    "half octaves": LogGrid(-64.0, 0.5, V_LEVELS),
}

#: Made with Python's `decimal`, by another program than this package: see `by_decimal`.
GOLDEN_GRID = LogGrid(-23.6123046875, 0.1338348388671875, M_LEVELS)
GOLDEN_LEVELS = {
    0: 0x33A7766E,
    1: 0x33B7BDB5,
    2: 0x33C99A12,
    63: 0x37E1DC5E,
    64: 0x37F7D0DF,
    125: 0x3C0AD164,
    126: 0x3C184FDA,
}
GOLDEN_THRESHOLDS = {0: 0x33AF69C2, 1: 0x33C076E1, 63: 0x37EC9576, 125: 0x3C116893}


def power(exponent: mpmath.mpf) -> tuple[int, mpmath.mpf]:
    """`2**exponent` in units of a binary32's last place there: the whole units, and the rest in [0, 1)."""
    whole = int(mpmath.floor(exponent))
    units = mpmath.mpf(2) ** (exponent - whole + FRACTION_BITS)
    below = int(mpmath.floor(units))
    return ((whole + 126) << FRACTION_BITS) + below, units - below


def wrong_levels(grid: LogGrid, table: Tensor) -> list[str]:
    """The entries that are not their power of two rounded to the nearest binary32."""
    wrong = []
    with mpmath.workprec(PRECISION):
        for i, found in enumerate(table.view(torch.int32).tolist()):
            bits, rest = power(mpmath.mpf(grid.low) + i * mpmath.mpf(grid.step))
            assert abs(rest - 0.5) > mpmath.mpf(2) ** (100 - PRECISION), "a tie: no power of two here has one"
            right = bits + int(rest > 0.5)
            if found != right:
                wrong.append(f"level {i} of {grid} is {hex_of(from_bits(found))}, expected {hex_of(from_bits(right))}")
    return wrong


def wrong_thresholds(grid: LogGrid, table: Tensor) -> list[str]:
    """The entries that are not the least binary32 that is at least the geometric mean of its two levels."""
    wrong = []
    with mpmath.workprec(PRECISION):
        for i, found in enumerate(table.view(torch.int32).tolist()):
            middle = mpmath.mpf(2) ** (mpmath.mpf(grid.low) + (i + mpmath.mpf(0.5)) * mpmath.mpf(grid.step))
            at_least = mpmath.mpf(from_bits(found)) >= middle
            least = mpmath.mpf(from_bits(found - 1)) < middle
            if not (at_least and least):
                wrong.append(
                    f"threshold {i} of {grid} is {hex_of(from_bits(found))}, and the mean {float(middle).hex()}"
                )
    return wrong


def moved(table: Tensor, by: int) -> Tensor:
    """A copy with every entry moved by units in the last place."""
    return (table.view(torch.int32) + by).view(torch.float32)


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_levels_are_correctly_rounded(grid: LogGrid) -> None:
    table = levels(grid)

    assert table.dtype == torch.float32
    assert table.shape == (grid.levels,)
    assert wrong_levels(grid, table) == []


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_thresholds_are_the_least_binary32_at_or_above_the_geometric_mean(grid: LogGrid) -> None:
    table = thresholds(grid)

    assert table.dtype == torch.float32
    assert table.shape == (grid.levels - 1,)
    assert wrong_thresholds(grid, table) == []


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_levels_and_thresholds_interleave(grid: LogGrid) -> None:
    level, threshold = levels(grid), thresholds(grid)

    assert bool((level[:-1] < threshold).all())
    assert bool((threshold <= level[1:]).all())
    bits = level.view(torch.int32)
    assert int(bits.min()) >= SMALLEST_NORMAL
    assert int(bits.max()) <= LARGEST_FINITE_BITS


@given(
    st.integers(int(LOWEST / RESOLUTION), int(HIGHEST / RESOLUTION) - 2**16),
    st.integers(4, 2**17),
    st.integers(2, 12),
)
def test_any_grid_is_correctly_rounded(low: int, step: int, count: int) -> None:
    count = min(count, int((HIGHEST / RESOLUTION - low) / step) + 1)
    grid = LogGrid(low * RESOLUTION, step * RESOLUTION, count)

    assert wrong_levels(grid, levels(grid)) == []
    assert wrong_thresholds(grid, thresholds(grid)) == []


@pytest.mark.parametrize("by", [1, -1])
def test_the_checks_see_one_unit_in_the_last_place_of_any_entry(by: int) -> None:
    for grid in (GRIDS["trained m"], GRIDS["trained v"]):
        said = wrong_levels(grid, moved(levels(grid), by))
        assert [line.split(" of ")[0] for line in said] == [f"level {i}" for i in range(grid.levels)]
        said = wrong_thresholds(grid, moved(thresholds(grid), by))
        assert [line.split(" of ")[0] for line in said] == [f"threshold {i}" for i in range(grid.levels - 1)]


def by_decimal(exponent: Decimal, *, up: bool) -> int:
    """The bits of `2**exponent` as a normal binary32, to nearest or up, without mpmath."""
    with localcontext() as context:
        context.prec = 60
        whole = math.floor(exponent)
        units = Decimal(2) ** (exponent - whole) * 2**FRACTION_BITS
        rounded: int = math.ceil(units) if up else round(units)
        return ((whole + 126) << FRACTION_BITS) + rounded


def test_golden_values() -> None:
    level, threshold = levels(GOLDEN_GRID).view(torch.int32), thresholds(GOLDEN_GRID).view(torch.int32)

    assert {i: int(level[i]) for i in GOLDEN_LEVELS} == GOLDEN_LEVELS
    assert {i: int(threshold[i]) for i in GOLDEN_THRESHOLDS} == GOLDEN_THRESHOLDS


def test_decimal_agrees_with_every_entry_of_the_golden_grid() -> None:
    low, step = Decimal(GOLDEN_GRID.low), Decimal(GOLDEN_GRID.step)

    expected = [by_decimal(low + i * step, up=False) for i in range(M_LEVELS)]
    assert levels(GOLDEN_GRID).view(torch.int32).tolist() == expected
    expected = [by_decimal(low + (i + Decimal("0.5")) * step, up=True) for i in range(M_LEVELS - 1)]
    assert thresholds(GOLDEN_GRID).view(torch.int32).tolist() == expected


def test_every_mantissa_there_is(budget: int) -> None:
    """Every 64th of the octave's entries, and with `--oracle` all: no grid has another."""
    octave, stride = tables._octave(), 64 if budget == 1 else 1
    with mpmath.workprec(PRECISION):
        for k in range(0, 1 << 17, stride):
            bits, rest = power(mpmath.ldexp(k, -17))
            found = int(octave.up[k]) + ONE
            assert found == bits + int(rest > 0), f"2**({k}/2**17) up is {hex_of(from_bits(found))}"
            if k % 2 == 0:
                found = int(octave.nearest[k // 2]) + ONE
                assert found == bits + int(rest > 0.5), f"2**({k}/2**17) to nearest is {hex_of(from_bits(found))}"


def test_a_power_too_close_to_call_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_DOUBT", 1 << 30)  # instead of 4: many are nearer than that
    with pytest.raises(ArithmeticError, match=r"too close to a rounding boundary"):
        tables._octave.__wrapped__()
