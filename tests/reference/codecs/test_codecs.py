"""Every codec beside its scalar twin, and what the protocol promises of all of them."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.codecs.twins import BLOCK, Ratio8Twin, Twin, dynamic_values, families, member, root, twin_of
from tests.reference.guard.cases import Setting
from tests.strategies import LARGEST_FINITE, SIGN, SPECIAL_BITS, bits_of, floats_of, wild
from torch import Tensor

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.reference.codecs import (
    CODECS,
    BFloat16,
    Blockwise8,
    Codec,
    Codes,
    Entropy,
    FloatGrid,
    GridFamily,
    Joint,
    Lin8,
    Log8,
    LogGrid,
    Ratio8,
)
from guarded_moments.reference.codecs.blockwise8 import dynamic_map
from guarded_moments.reference.codecs.eight_bit import ESCAPE, M_LEVELS, V_LEVELS, EightBit
from guarded_moments.reference.codecs.entropy_choice import Choice
from guarded_moments.reference.errors import FormatError
from guarded_moments.reference.floats import hex_of


def entropy(
    step: float,
    pitch: int,
    base: int,
    unit: int,
    low_bits: tuple[int, int],
    rows: Sequence[int] = (),
    columns: Sequence[int] = (),
) -> Entropy:
    offsets = (torch.tensor(x, dtype=torch.int8) for x in (rows, columns))
    return Entropy(Choice(torch.tensor([step]).bfloat16().float(), pitch, base, unit, low_bits, *offsets))


ENDS = [(-40.0, -3.0), (-126.0, 127.5), (-20.0, -19.9)]

TRAINED_V = LogGrid(-47.0419921875, 0.13385009765625, V_LEVELS)
TRAINED = (
    LogGrid(-23.6123046875, 0.1338348388671875, M_LEVELS),
    LogGrid(-47.0419921875, 0.1338348388671875, V_LEVELS),
)

EXAMPLES: dict[str, Codec] = {
    "log8, trained": Log8(*TRAINED),
    "log8, whole and half octaves": Log8(LogGrid(-63.0, 1.0, M_LEVELS), LogGrid(-64.0, 0.5, V_LEVELS)),
    "log8, narrowest": Log8(LogGrid(0.0, 2.0**-14, M_LEVELS), LogGrid(-126.0, 2.0**-14, V_LEVELS)),
    "log8, lowest and highest": Log8(LogGrid(-126.0, 0.25, M_LEVELS), LogGrid(127.5 - 63.5, 0.25, V_LEVELS)),
    "log8, family": Log8(families(LogGrid, ENDS, M_LEVELS, 500), families(LogGrid, ENDS[::-1], V_LEVELS, 500)),
    "lin8, trained": Lin8(FloatGrid.spanning(-23.6, -6.7, M_LEVELS), FloatGrid.spanning(-47.0, -13.0, V_LEVELS)),
    "lin8, narrowest": Lin8(FloatGrid(0x3F800000, 1, M_LEVELS), FloatGrid(0x00800000, 1 << 10, V_LEVELS)),
    "lin8, even and odd steps": Lin8(FloatGrid(0x33000000, 7, M_LEVELS), FloatGrid(0x28000001, 1 << 20, V_LEVELS)),
    "lin8, whole range": Lin8(FloatGrid.spanning(-126, 128, M_LEVELS), FloatGrid.spanning(-126, 128, V_LEVELS)),
    "lin8, family": Lin8(families(FloatGrid, ENDS, M_LEVELS, 500), families(FloatGrid, ENDS[::-1], V_LEVELS, 500)),
    "bf16": BFloat16(),
    "blockwise8": Blockwise8(
        torch.tensor([1.0, 3e-5, 0.0, 1e-45, 3.4e38, 0.1]), torch.tensor([2e-9, 0.0, 1.0, 1e30, 1e-40, 7.0])
    ),
    "joint": Joint(*TRAINED),
    "ratio8, trained": Ratio8(TRAINED_V, torch.tensor([0.0264892578125])),
    "ratio8, whole octaves": Ratio8(LogGrid(-64.0, 0.5, V_LEVELS), torch.tensor([1.0])),
    "ratio8, narrowest": Ratio8(LogGrid(-126.0, 2.0**-14, V_LEVELS), torch.tensor([2.0**-62])),
    "ratio8, highest": Ratio8(LogGrid(127.5 - 63.5, 0.25, V_LEVELS), torch.tensor([255.0 * 2.0**49])),
    "ratio8, family": Ratio8(families(LogGrid, ENDS, V_LEVELS, 500), torch.tensor([0.03125, 7.0, 2.0**-40])),
    "entropy, trained": entropy(0.0211, 1246, 4300, 3, (1, 3), list(range(-17, 18)), [k % 9 - 4 for k in range(40)]),
    "entropy, no rows": entropy(0.0211, 1246, 4300, 1, (0, 2)),
    "entropy, widest": entropy(2.0**48, 4, 3_000_000, 1, (8, 8)),
    "entropy, narrowest": entropy(2.0**-62, 4 * 65536, 40, 7, (0, 0), [0, 5], [k % 255 - 127 for k in range(700)]),
    "entropy, beyond the ends": entropy(1.0, 32768, 250, 1, (4, 0)),
}

every_codec = pytest.mark.parametrize("codec", EXAMPLES.values(), ids=EXAMPLES)
#: Coordinates that every example has parameters for.
ROOM = 1400


def mismatches(codec: Codec, m: Tensor, v: Tensor) -> list[str]:
    """Where the codec and its twin part, in either direction; the coordinates start at the tensor's first."""
    twin: Twin = twin_of(codec)
    codes = codec.encode(m, v)
    assert codes.m.dtype == codes.v.dtype == codec.code_type
    decoded = codec.decode(*codes)
    found = zip(m.tolist(), v.tolist(), *(x.tolist() for x in (*codes, *decoded)), strict=True)
    wrong = []
    for place, (a, b, m_code, v_code, m_hat, v_hat) in enumerate(found):
        expected = twin.encode(a, b, place)
        if (m_code, v_code) != expected:
            wrong.append(f"m = {hex_of(a)}, v = {hex_of(b)} at {place}: {(m_code, v_code)}, expected {expected}")
        if not codec.escaped(*(x[place : place + 1] for x in codes)):
            hats = twin.decode(m_code, v_code, place)
            if [hex_of(m_hat), hex_of(v_hat)] != [hex_of(x) for x in hats]:
                wrong.append(f"codes {(m_code, v_code)} at {place}: {hex_of(m_hat)}, {hex_of(v_hat)}, expected {hats}")
    return wrong


def finite(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Tensor:
    return torch.from_numpy(values[np.isfinite(values)])


@every_codec
def test_encode_and_decode_are_the_twins_on_wild_values(codec: Codec, rng: np.random.Generator, budget: int) -> None:
    for _ in range(budget):
        m, v = finite(wild(ROOM, rng)), finite(wild(ROOM, rng)).abs()
        count = min(len(m), len(v))
        assert mismatches(codec, m[:count], v[:count]) == []


@every_codec
def test_encode_and_decode_are_the_twins_on_special_values(codec: Codec) -> None:
    values = finite(floats_of(SPECIAL_BITS))

    m, v = (grid.reshape(-1) for grid in torch.meshgrid(values, values.abs(), indexing="ij"))
    assert mismatches(codec, m, v) == []


def edges(codec: Codec, moment: int, most: int = 300) -> Tensor:
    """The first number of each code and the last before it, of the first coordinate's positive codes, by bisection."""

    def codes_of(bits: Tensor) -> Tensor:
        values, ones = bits.view(torch.float32), torch.ones(len(bits))
        pair = (values, ones) if moment == 0 else (ones, values)
        # All at place 0, so that one member of a family, one block serves for all.
        blocks = (slice(i, i + BLOCK) for i in range(0, len(bits), BLOCK))
        parts = [codec.encode(pair[0][block], pair[1][block])[moment] for block in blocks]
        return torch.cat(parts).int()

    ends = codes_of(torch.tensor([0, LARGEST_FINITE], dtype=torch.int32)).tolist()
    below = torch.arange(ends[0], ends[1], dtype=torch.int32)  # codes grow with the magnitude
    below = below[:: -(-len(below) // most)]
    low, high = torch.zeros_like(below), torch.full_like(below, LARGEST_FINITE)
    while bool((high - low > 1).any()):
        middle = low + (high - low) // 2
        low, high = (
            torch.where(codes_of(middle) <= below, middle, low),
            torch.where(codes_of(middle) <= below, high, middle),
        )
    return torch.cat([low, high]).view(torch.float32)


@every_codec
def test_codes_change_where_the_twins_do(codec: Codec) -> None:
    twin = twin_of(codec)
    for moment in (0, 1):
        found = edges(codec, moment)
        assert len(found) >= 2 * (126, 254)[moment] or isinstance(codec, BFloat16 | Blockwise8 | Ratio8 | Entropy)
        for value in found.tolist():
            pair = (value, 1.0) if moment == 0 else (1.0, value)
            code = codec.encode(torch.tensor(pair[:1]), torch.tensor(pair[1:]))[moment]
            assert int(code) == twin.encode(*pair)[moment], f"{'mv'[moment]} = {hex_of(value)}"


@pytest.mark.parametrize("name", [name for name, codec in EXAMPLES.items() if isinstance(codec, EightBit)])
def test_every_code_of_eight_bits_is_a_fixed_point_sorted_and_distinct(name: str) -> None:
    codec = EXAMPLES[name]
    m_codes = torch.tensor([code for code in range(256) if code != 0x80], dtype=torch.uint8)
    v_codes = torch.arange(256).to(torch.uint8)
    v_of_m, m_of_v = torch.zeros_like(m_codes), torch.zeros_like(v_codes)

    m, _ = codec.decode(m_codes, v_of_m)
    _, v = codec.decode(m_of_v, v_codes)

    assert torch.equal(codec.encode(m, torch.zeros_like(m)).m, m_codes)
    assert torch.equal(codec.encode(torch.zeros_like(v), v).v, v_codes)
    assert bool((v[1:] > v[:-1]).all())
    assert bool((m[1:128] > m[:127]).all())
    assert torch.equal(m[128:], -m[1:128])
    twin = twin_of(codec)
    assert v.tolist() == [twin.decode(0, code)[1] for code in range(256)]
    assert m.tolist() == [twin.decode(code, 0)[0] for code in m_codes.tolist()]


RATIOS = {name: codec for name, codec in EXAMPLES.items() if isinstance(codec, Ratio8)}


@pytest.mark.parametrize("name", RATIOS)
def test_every_pair_of_codes_of_a_ratio_is_a_fixed_point_sorted_and_distinct(name: str) -> None:
    codec = RATIOS[name]
    multiples = torch.arange(-127, 128)
    m_codes = (multiples & 0xFF).to(torch.uint8)
    previous = None
    for code in range(1, 256):
        v_codes = torch.full_like(m_codes, code)
        m, v = codec.decode(m_codes, v_codes)
        assert [x.tolist() for x in codec.encode(m, v)] == [m_codes.tolist(), v_codes.tolist()], f"v code {code}"
        assert bool((m[1:] > m[:-1]).all()), f"v code {code}"
        assert torch.equal(m, -m.flip(0)), f"v code {code}"
        assert bool((m.abs()[multiples != 0] >= torch.finfo(torch.float32).tiny).all()), f"v code {code}"
        if previous is not None:
            assert bool((v > previous[1]).all()), f"v code {code}"
            assert bool((m[128:] > previous[0][128:]).all()), f"v code {code}"
        previous = m, v


@pytest.mark.parametrize("name", RATIOS)
def test_every_code_of_both_tables_of_a_ratio_and_their_products_are_correctly_rounded(name: str, budget: int) -> None:
    """The tables against mpmath; products against fractions, with --oracle all 255 by 256 of them, else an eighth."""
    codec = RATIOS[name]
    twin = Ratio8Twin(codec)
    if not isinstance(codec.v_grid, GridFamily):
        first, roots, second = (table.tolist() for table in codec.tables())
        step = Fraction(float(codec.steps))
        assert [Fraction(x) for x in first] == [k * step for k in [*range(128), 0, *range(-127, 0)]]
        assert roots == [root(code, member(codec.v_grid, 0)) for code in range(256)]
        assert second == [twin.decode(0, code)[1] for code in range(256)]
    every = torch.arange(256).to(torch.uint8)
    for code in range(256) if budget > 1 else (0, 1, *range(2, 255, 8), 255):
        m, v = codec.decode(every, torch.full_like(every, code))
        for m_code, m_hat, v_hat in zip(range(256), m.tolist(), v.tolist(), strict=True):
            if m_code != ESCAPE:
                expected = [hex_of(x) for x in twin.decode(m_code, code)]
                assert [hex_of(m_hat), hex_of(v_hat)] == expected, f"codes {m_code, code}"


@pytest.mark.parametrize("name", RATIOS)
def test_a_first_moment_half_way_between_two_multiples_becomes_the_even_one(name: str) -> None:
    codec = RATIOS[name]
    twin = Ratio8Twin(codec)
    tried = 0
    for code in range(1, 256, 6):
        v = codec.decode(torch.zeros(1, dtype=torch.uint8), torch.tensor([code], dtype=torch.uint8))[1]
        unit = Fraction(float(codec.steps[0])) * Fraction(root(code, member(codec.v_grid, 0)))
        for half in (0.5, 1.5, 30.5, 125.5, 126.5, 127.5):
            middle = torch.tensor([float(Fraction(half) * unit)])
            around = torch.cat([torch.nextafter(middle, torch.zeros(1)), middle, torch.nextafter(middle, 2 * middle)])
            values = torch.cat([around, -around])
            codes = codec.encode(values, v.expand(6))
            expected = [twin.encode(m, float(v)) for m in values.tolist()]
            assert list(zip(codes.m.tolist(), codes.v.tolist(), strict=True)) == expected, f"{half} of {unit}"
            tried += sum(Fraction(m) == Fraction(half) * unit for m in around.tolist())
    assert tried >= 6 or name != "ratio8, whole octaves", "no exact tie among them"


def test_a_ratio_keeps_zeros_and_nothing_beside_a_second_moment_of_zero() -> None:
    codec = EXAMPLES["ratio8, trained"]
    m = torch.tensor([0.0, -0.0, 1e-45, -3e38, 0.0, -1e-45, 1e-45])
    v = torch.tensor([0.0, 0.0, 0.0, 0.0, 1e-45, 1e-9, 3e38])

    codes = codec.encode(m, v)

    assert codes.m.tolist() == [0] * 7
    assert codes.v.tolist() == [0, 0, 0, 0, 1, codes.v.tolist()[5], 255]
    m_hat, v_hat = codec.decode(*codes)
    assert torch.equal(bit_pattern(m_hat), torch.zeros(7, dtype=torch.int32)), "plus zero"
    assert (v_hat == 0).tolist() == (v == 0).tolist()


def test_parameters_of_a_ratio_that_are_none_are_refused() -> None:
    good: dict[str, Any] = {"grid": [-3000000, 8000], "step": 0x3D00}
    assert Ratio8.from_parameters(good, {}).steps.tolist() == [0.03125]
    for bad in (
        {"grid": [-3000001, 8000]},
        {"grid": [-3000000, 8001]},
        {"step": 0},
        {"step": 0xBD00},  # negative
        {"step": 0x7F80},  # infinite
        {"step": 0x7FC0},  # NaN
        {"step": 0x5C00},  # 2**57
        {"step": 0x207F},  # below 2**-62
        {"step": -1},
        {"step": 1 << 16},
        {"step": 0.03125},
        {"step": 0x3D00 + (1 << 64)},
    ):
        with pytest.raises((FormatError, TypeError, ValueError, RuntimeError)):
            Ratio8.from_parameters({**good, **bad}, {})
    other = families(FloatGrid, ENDS, V_LEVELS, 500)
    for steps, grids in ((torch.tensor([0.03]), TRAINED_V), (torch.ones(2), TRAINED_V), (torch.ones(3), other)):
        with pytest.raises(FormatError):
            Ratio8(grids, steps)


def test_every_code_of_bfloat16_is_a_fixed_point_and_torch_agrees() -> None:
    codec, codes = BFloat16(), torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
    m, _ = codec.decode(codes, codes)

    assert torch.equal(bit_pattern(m), bit_pattern(codes.view(torch.bfloat16).float()))
    usable = m.isfinite()
    assert torch.equal(codec.encode(m[usable], m[usable].abs()).m.int(), codes.int()[usable])


@pytest.mark.parametrize("signed", [True, False])
def test_every_value_of_the_dynamic_map_is_correctly_rounded_sorted_and_distinct(*, signed: bool) -> None:
    found = dynamic_map(signed=signed)

    assert found.values.tolist() == dynamic_values(signed=signed)
    assert bool((found.values[1:] > found.values[:-1]).all())
    assert float(found.values[found.zero]) == 0.0
    assert found.values.shape == (256,)
    codes = torch.bucketize(found.values, found.thresholds, right=True)
    assert torch.equal(codes, torch.arange(256)), "a value's own code is the nearest"


def test_every_code_of_a_block_is_a_fixed_point() -> None:
    """With a scale of one; other scales round the product, which then may be nearer to another code."""
    codec, codes = Blockwise8(torch.ones(1), torch.ones(1)), torch.arange(256).to(torch.uint8)
    m, v = codec.decode(codes, codes)

    assert torch.equal(codec.encode(m, torch.zeros(256)).m, codes)
    assert torch.equal(codec.encode(torch.zeros(256), v).v, codes)


def bit_pattern(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


@every_codec
def test_zero_becomes_zero(codec: Codec) -> None:
    zeros = torch.zeros(ROOM)
    codes = codec.encode(zeros, zeros)

    assert not bool(codec.escaped(*codes).any())
    for decoded in codec.decode(*codes):
        assert torch.equal(bit_pattern(decoded), bit_pattern(zeros)), "plus zero"


@pytest.mark.parametrize("name", [name for name, codec in EXAMPLES.items() if isinstance(codec, EightBit)])
def test_nothing_else_becomes_zero_or_the_escape_on_a_grid(name: str, rng: np.random.Generator, budget: int) -> None:
    codec = EXAMPLES[name]
    smallest = torch.from_numpy(floats_of([1, 1 | SIGN]))
    assert [codes.tolist() for codes in codec.encode(smallest, smallest.abs())] == [[1, 0x81], [1, 1]]
    assert codec.encode(torch.tensor([-0.0]), torch.tensor([0.0])).m.tolist() == [0]
    count = 200_000 * budget if "family" not in name else ROOM
    bits = rng.integers(1, LARGEST_FINITE + 1, size=count, dtype=np.uint32)
    signs = rng.integers(2, size=count, dtype=np.uint32) << np.uint32(31)

    codes = codec.encode(torch.from_numpy(floats_of(bits | signs)), torch.from_numpy(floats_of(bits)))

    assert not bool(codec.escaped(*codes).any())
    assert not bool(((codes.m & 0x7F) == 0).any())
    assert not bool((codes.v == 0).any())


@every_codec
def test_an_escape_is_seen_and_nothing_beside_it_changes(codec: Codec, rng: np.random.Generator) -> None:
    m = torch.from_numpy(rng.standard_normal(ROOM).astype(np.float32) * 1e-4)
    codes = codec.encode(m, m * m)
    where = torch.from_numpy(rng.random(ROOM) < 0.3)

    marked = codec.escape(codes, where)

    assert torch.equal(codec.escaped(*marked), where | codec.escaped(*codes))
    for before, after in zip(codes, marked, strict=True):
        assert torch.equal(before.int()[~where], after.int()[~where])
        assert before.dtype == after.dtype


@every_codec
def test_any_stretch_of_a_tensor_is_as_in_the_whole(codec: Codec, rng: np.random.Generator) -> None:
    m = torch.from_numpy(rng.standard_normal(ROOM).astype(np.float32) * 1e-4)
    v = m * m
    whole = codec.encode(m, v)
    decoded = codec.decode(*whole)

    for start, stop in ((0, 1), (3, 700), (499, 501), (255, 257), (1100, ROOM)):
        part = codec.encode(m[start:stop], v[start:stop], start)
        for one, other in zip((*part, *codec.decode(*part, start)), (*whole, *decoded), strict=True):
            assert one.tolist() == other[start:stop].tolist()


@every_codec
def test_parameters_give_the_codec_back(codec: Codec) -> None:
    again = type(codec).from_parameters(codec.parameters(), codec.parameter_tensors())

    assert again == codec


@settings(max_examples=50)
@given(st.data(), st.sampled_from(sorted(CODECS)))
def test_foreign_parameters_are_refused(data: st.DataObject, name: str) -> None:
    numbers = st.integers() | st.floats() | st.none() | st.text(max_size=2)
    parameters = data.draw(
        st.dictionaries(
            st.sampled_from(("grids", "size", "grid", "step", "pitch", "base", "unit", "low_bits")),
            numbers | st.lists(st.lists(numbers, max_size=3), max_size=3),
        )
    )
    tensors = {
        name: torch.zeros(2, dtype=dtype)
        for name, dtype in data.draw(
            st.dictionaries(
                st.sampled_from(
                    (
                        *("m_origins", "m_pitches", "v_origins", "v_pitches", "m_scales", "v_scales", "m_steps"),
                        *("rows", "columns"),
                    )
                ),
                st.sampled_from((torch.int16, torch.float32, torch.uint8, torch.int8)),
            )
        ).items()
    }
    try:
        CODECS[name].from_parameters(parameters, tensors)
    except (FormatError, KeyError, TypeError, ValueError):
        return
    except OverflowError:
        raise AssertionError(parameters) from None


@pytest.mark.parametrize("name", CODECS)
def test_fitted_parameters_serve_any_tensor(name: str, rng: np.random.Generator) -> None:
    kind, case = CODECS[name], Setting().case()
    for count in (1, 255, 256, 257, 1000):
        m = torch.from_numpy(rng.standard_normal(count).astype(np.float32))
        rows = (size for size in (None, count, 5, 1) if size is None or count % size == 0)
        for size in rows if kind.by_rows else (None, 64, 256) if kind.granularities else (None,):
            codec = kind.fit(m, m * m, case.guard, size)
            codec.require_numel(count)
            assert len(codec.encode(m, m * m).m) == count
            assert codec == kind.fit(m, m * m, case.guard, size)


def test_parameters_of_another_tensor_are_refused() -> None:
    for codec in (
        EXAMPLES["log8, family"],
        EXAMPLES["lin8, family"],
        EXAMPLES["blockwise8"],
        EXAMPLES["ratio8, family"],
        EXAMPLES["entropy, trained"],
    ):
        with pytest.raises(FormatError, match=r"do not fit"):
            codec.require_numel(10_000)


def test_scales_that_are_none_are_refused() -> None:
    one = torch.ones(1)
    for bad in (torch.tensor([-1.0]), torch.tensor([np.nan]), torch.tensor([np.inf]), torch.ones(1, 1), one.double()):
        with pytest.raises(FormatError, match=r"scales"):
            Blockwise8.from_parameters({}, {"m_scales": bad, "v_scales": one})


def test_a_scale_is_the_largest_of_its_block_among_what_the_guard_covers() -> None:
    m = torch.tensor([0.5, -2.0, torch.nan, 1.0] + [0.0] * 252 + [3.0, torch.inf])
    v = torch.tensor([4.0, 1.0, 9.0, -1.0] + [0.0] * 252 + [0.25, 1.0])

    codec = Blockwise8.fit(m, v, lambda *states: states[0] == 0)

    assert codec.m_scales.tolist() == [2.0, 3.0]
    assert codec.v_scales.tolist() == [4.0, 0.25]


def test_joint_offers_the_eight_neighbours_of_the_same_sign() -> None:
    codec = Joint(*TRAINED)
    m, v = torch.tensor([5, 0x85, 1, 0xFF, 0, 0x80]), torch.tensor([9, 200, 1, 255, 0, 7])
    codes = Codes(m.to(torch.uint8), v.to(torch.uint8))

    offered = [list(zip(*(x.tolist() for x in tried), strict=True)) for tried in codec.alternatives(codes)]

    assert len(offered) == 8
    around = [(5, 10), (5, 8), (6, 9), (4, 9), (6, 10), (6, 8), (4, 10), (4, 8)]
    assert [tried[0] for tried in offered] == around
    assert [tried[1] for tried in offered] == [(m | 0x80, v + 191) for m, v in around]
    assert {tried[2] for tried in offered} == {(1, 2), (1, 1), (2, 1), (2, 2)}, "the lowest level does not become zero"
    assert {tried[3] for tried in offered} == {(0xFF, 255), (0xFF, 254), (0xFE, 255), (0xFE, 254)}
    assert {tried[4] for tried in offered} == {(0, 0)}, "zero has no neighbours"


def test_only_joint_offers_any() -> None:
    codes = Codes(torch.tensor([3], dtype=torch.uint8), torch.tensor([4], dtype=torch.uint8))
    for codec in EXAMPLES.values():
        assert (len(list(codec.alternatives(codes))) > 0) == isinstance(codec, Joint)


@given(binary32(finite=True), binary32(finite=True, signs=False), st.sampled_from(list(EXAMPLES)))
def test_a_code_is_the_twins(m: float, v: float, name: str) -> None:
    codec = EXAMPLES[name]
    codes = codec.encode(torch.tensor([m]), torch.tensor([v]))

    assert (int(codes.m), int(codes.v)) == twin_of(codec).encode(m, v), hex_of(m)


def test_the_table_of_a_codec_with_one_grid_is_its_levels() -> None:
    for name in ("log8, trained", "lin8, trained"):
        codec = EXAMPLES[name]
        assert isinstance(codec, EightBit)
        m_table, v_table = codec.tables()
        every = torch.arange(256).to(torch.uint8)
        assert bits_of(m_table.numpy()).tolist() == bits_of(codec.decode(every, every)[0].numpy()).tolist()
        assert bits_of(v_table.numpy()).tolist() == bits_of(codec.decode(every, every)[1].numpy()).tolist()
