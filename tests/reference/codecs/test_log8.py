"""log8 beside an obvious scalar twin, which takes logarithms where the codec compares with a table."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.guard.cases import Setting
from tests.strategies import LARGEST_FINITE, SIGN, SPECIAL_BITS, binary32, bits_of, floats_of, wild
from torch import Tensor

from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.codecs.log8 import ESCAPE, M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.tables import levels, thresholds
from guarded_moments.reference.floats import hex_of

PRECISION = 300

CODECS = {
    "trained": Log8(
        LogGrid(-23.6123046875, 0.1338348388671875, M_LEVELS), LogGrid(-47.0419921875, 0.1338348388671875, V_LEVELS)
    ),
    "whole and half octaves": Log8(LogGrid(-63.0, 1.0, M_LEVELS), LogGrid(-64.0, 0.5, V_LEVELS)),
    "narrowest": Log8(LogGrid(0.0, 2.0**-14, M_LEVELS), LogGrid(-126.0, 2.0**-14, V_LEVELS)),
    "lowest and highest": Log8(LogGrid(-126.0, 0.25, M_LEVELS), LogGrid(127.5 - 63.5, 0.25, V_LEVELS)),
}


def nearest(magnitude: float, grid: LogGrid) -> int:
    """The code of a magnitude: 0 for zero, else 1 more than the level nearest in the logarithm, ties to the larger."""
    if magnitude == 0:
        return 0
    with mpmath.workprec(PRECISION):
        position = (mpmath.log(mpmath.mpf(magnitude), 2) - mpmath.mpf(grid.low)) / mpmath.mpf(grid.step)
        twice = mpmath.nint(2 * position)
        if abs(2 * position - twice) < mpmath.mpf(2) ** -200:  # only powers of two come that near without being it
            position = twice / 2
        index = int(mpmath.floor(position + mpmath.mpf(0.5)))
    return min(max(index, 0), grid.levels - 1) + 1


def twin(codec: Log8, m: float, v: float) -> tuple[int, int]:
    """Both codes of one coordinate, obviously."""
    m_code = nearest(abs(m), codec.m_grid)
    return m_code | (0x80 if m < 0 and m_code else 0), nearest(v, codec.v_grid)


def mismatches(codec: Log8, m: Tensor, v: Tensor) -> list[str]:
    """Where the codec and its twin part."""
    m_codes, v_codes = codec.encode(m, v)
    assert m_codes.dtype == v_codes.dtype == torch.uint8
    found = zip(m.tolist(), v.tolist(), m_codes.tolist(), v_codes.tolist(), strict=True)
    return [
        f"m = {hex_of(a)}, v = {hex_of(b)}: codes {(m_code, v_code)}, expected {twin(codec, a, b)}"
        for a, b, m_code, v_code in found
        if (m_code, v_code) != twin(codec, a, b)
    ]


def finite(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Tensor:
    return torch.from_numpy(values[np.isfinite(values)])


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_encode_is_its_twin_on_wild_values(codec: Log8, rng: np.random.Generator, budget: int) -> None:
    m, v = finite(wild(1500 * budget, rng)), finite(wild(1500 * budget, rng)).abs()
    count = min(len(m), len(v))

    assert mismatches(codec, m[:count], v[:count]) == []


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_encode_is_its_twin_at_every_threshold_and_level_and_beside_it(codec: Log8) -> None:
    def around(grid: LogGrid) -> Tensor:
        bits = torch.cat([levels(grid), thresholds(grid)]).view(torch.int32)
        return torch.cat([bits - 1, bits, bits + 1]).view(torch.float32)

    m, v = around(codec.m_grid), around(codec.v_grid)
    assert mismatches(codec, torch.cat([m, -m]), torch.zeros(2 * len(m))) == []
    assert mismatches(codec, torch.zeros(len(v)), v) == []


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_encode_is_its_twin_on_special_values(codec: Log8) -> None:
    values = finite(floats_of(SPECIAL_BITS))

    m, v = (grid.reshape(-1) for grid in torch.meshgrid(values, values.abs(), indexing="ij"))
    assert mismatches(codec, m, v) == []


def test_the_twin_sees_a_threshold_moved_by_one_unit_in_the_last_place() -> None:
    codec = CODECS["trained"]
    table = thresholds(codec.m_grid)
    for i in (0, 1, 63, M_LEVELS - 2):
        below, at = table[i].view(torch.int32) - 1, table[i]
        assert nearest(float(at), codec.m_grid) == nearest(float(below.view(torch.float32)), codec.m_grid) + 1


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_code_survives_decoding(codec: Log8) -> None:
    m_codes = torch.tensor([code for code in range(256) if code != ESCAPE], dtype=torch.uint8)
    v_codes = torch.arange(256).to(torch.uint8)

    m, _ = codec.decode(m_codes, torch.zeros_like(m_codes))
    _, v = codec.decode(torch.zeros_like(v_codes), v_codes)

    assert torch.equal(codec.encode(m, torch.zeros_like(m))[0], m_codes)
    assert torch.equal(codec.encode(torch.zeros_like(v), v)[1], v_codes)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_decode_is_the_table_of_levels(codec: Log8) -> None:
    m_codes = torch.arange(256).to(torch.uint8)
    m, v = codec.decode(m_codes, m_codes)

    magnitudes = bits_of(levels(codec.m_grid).numpy())
    expected = [0, *magnitudes, 0, *(magnitudes | SIGN)]  # the escape's own entry is plus zero
    assert bits_of(m.numpy()).tolist() == expected
    assert bits_of(v.numpy()).tolist() == [0, *bits_of(levels(codec.v_grid).numpy())]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_zero_and_nothing_else_becomes_zero(codec: Log8) -> None:
    smallest = torch.from_numpy(floats_of([1, 1 | SIGN]))
    zeros = torch.from_numpy(floats_of([0, SIGN]))

    assert [codes.tolist() for codes in codec.encode(zeros, zeros.abs())] == [[0, 0], [0, 0]]
    assert [codes.tolist() for codes in codec.encode(smallest, smallest.abs())] == [[1, 0x81], [1, 1]]


@given(binary32(finite=True), binary32(finite=True, signs=False), st.sampled_from(list(CODECS)))
def test_no_value_gets_the_code_of_the_escape(m: float, v: float, name: str) -> None:
    m_codes, _ = CODECS[name].encode(torch.tensor([m]), torch.tensor([v]))

    assert int(m_codes) != ESCAPE, hex_of(m)


def test_no_value_of_a_million_gets_the_code_of_the_escape(rng: np.random.Generator, budget: int) -> None:
    bits = rng.integers(LARGEST_FINITE + 1, size=1_000_000 * budget, dtype=np.uint32)
    m = torch.from_numpy(floats_of(bits | rng.integers(2, size=len(bits), dtype=np.uint32) << np.uint32(31)))

    for codec in CODECS.values():
        m_codes, _ = codec.encode(m, torch.zeros(1))
        assert not bool((m_codes == ESCAPE).any())


def test_fit_gives_a_grid_of_each_size(rng: np.random.Generator) -> None:
    m = torch.from_numpy(rng.standard_normal(300).astype(np.float32))
    case = Setting().case()

    codec = Log8.fit(m, m * m, case.guard)

    assert (codec.m_grid.levels, codec.v_grid.levels) == (M_LEVELS, V_LEVELS)
    assert codec == Log8.fit(m, m * m, case.guard)
