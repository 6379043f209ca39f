"""Binary formats as exact numbers, and binary32 values as bits."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.arithmetic.exact_binary32 import round_to_nearest_even
from tests.strategies import INFINITY, NAN, SIGN, SPECIAL_BITS, fractions, wild

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.reference.floats import (
    BINARY32,
    BINARY64,
    LARGEST_FINITE_BITS,
    FloatFormat,
    bits_of,
    from_bits,
    from_ordinals,
    hex_of,
    ordinals,
    round_down,
    round_to_binary32,
    round_up,
    square_root_down,
    square_root_up,
)

LARGEST_BINARY64 = Fraction(np.finfo(np.float64).max.item())


@pytest.mark.parametrize(
    ("fmt", "info"), [(BINARY32, np.finfo(np.float32)), (BINARY64, np.finfo(np.float64))], ids=("binary32", "binary64")
)
def test_the_constants_of_a_format_are_those_of_numpy(fmt: FloatFormat, info: "np.finfo[np.floating]") -> None:
    assert fmt.unit_roundoff == Fraction(float(info.eps)) / 2
    assert fmt.smallest_normal == Fraction(float(info.smallest_normal))
    assert fmt.smallest_subnormal == Fraction(float(info.smallest_subnormal))
    assert fmt.half_smallest_subnormal == fmt.smallest_subnormal / 2
    assert fmt.largest == Fraction(float(info.max))


def test_a_small_format_agrees_with_its_list_of_values() -> None:
    fmt = FloatFormat(precision=3, largest_exponent=2)
    subnormal = [Fraction(i, 8) for i in range(4)]
    normal = [Fraction(i, 4) * 2**e for e in range(-1, 3) for i in range(4, 8)]
    values = subnormal + normal
    assert fmt.smallest_subnormal == values[1]
    assert fmt.smallest_normal == normal[0] == Fraction(1, 2)
    assert fmt.largest == values[-1] == 7
    assert fmt.unit_roundoff == Fraction(1, 8)


def test_the_largest_finite_bits() -> None:
    assert from_bits(LARGEST_FINITE_BITS) == float(BINARY32.largest)
    assert from_bits(LARGEST_FINITE_BITS + 1) == math.inf


@given(st.integers(0, 2**32 - 1) | st.sampled_from(SPECIAL_BITS))
def test_bits_come_back(bits: int) -> None:
    """All but the mark of a signalling NaN, which the hardware's conversion takes away."""
    magnitude = bits & ~SIGN
    signalling = INFINITY < magnitude < NAN
    back = bits_of(from_bits(bits))
    assert back == bits or (signalling and back == bits | NAN), f"{bits:08x} -> {back:08x}"


@pytest.mark.parametrize("bits", [NAN | 1, NAN | SIGN | 0x12345, INFINITY | 0x7FFFFF])
def test_payloads_of_quiet_nan_come_back(bits: int) -> None:
    assert bits_of(from_bits(bits)) == bits, f"{bits:08x} -> {bits_of(from_bits(bits)):08x}"


def test_values_come_back_from_their_bits(rng: np.random.Generator) -> None:
    for value in wild(2000, rng):
        expected = int(value.view(np.uint32))
        if not math.isnan(value):
            assert bits_of(float(value)) == expected, hex_of(float(value))
            assert from_bits(expected) == value


@given(st.floats(allow_nan=False))
def test_bits_are_those_of_the_rounded_value(value: float) -> None:
    expected = round_to_nearest_even(Fraction(value)) if math.isfinite(value) else bits_of(value)
    if value == 0:
        expected = bits_of(value)
    assert bits_of(value) == expected, value.hex()
    assert bits_of(round_to_binary32(value)) == expected, value.hex()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2.0**-24, 1.0),  # a tie, to even
        (1 + 3 * 2.0**-24, 1 + 2.0**-22),  # a tie, to even
        (math.nextafter(1 + 2.0**-24, 2), 1 + 2.0**-23),
        (2.0**-150, 0.0),
        (math.nextafter(2.0**-150, 1), 2.0**-149),
        (2.0**128 - 2.0**103, math.inf),
        (math.nextafter(2.0**128 - 2.0**103, 0), 2.0**128 - 2.0**104),
        (1e300, math.inf),
        (-1e300, -math.inf),
        (-math.inf, -math.inf),
    ],
)
def test_rounding_to_binary32(value: float, expected: float) -> None:
    assert round_to_binary32(value) == expected, value.hex()


def test_rounding_keeps_nan_and_minus_zero() -> None:
    assert math.isnan(round_to_binary32(math.nan))
    assert math.copysign(1, round_to_binary32(-0.0)) == -1
    assert math.copysign(1, round_to_binary32(-1e-300)) == -1


@given(binary32())
def test_the_hexadecimal_text_is_the_value(value: float) -> None:
    text, _, bits = hex_of(value).partition(" ")
    assert bits == f"[{bits_of(value):08x}]"
    if math.isfinite(value):
        assert bits_of(float.fromhex(text)) == bits_of(value)
    else:
        assert text == str(value)


def test_the_hexadecimal_text_has_the_digits_that_binary32_needs() -> None:
    assert hex_of(1.5 * 2.0**-12) == "0x1.800000p-12 [39c00000]"
    assert hex_of(-0.0) == "-0x0.000000p+0 [80000000]"
    assert hex_of(2.0**-149) == "0x1.000000p-149 [00000001]"
    assert hex_of(-math.inf) == "-inf [ff800000]"


@given(fractions(1100))
def test_rounding_down_and_up_enclose_with_nothing_between(value: Fraction) -> None:
    below, above = round_down(value), round_up(value)
    assert below == -math.inf or Fraction(below) <= value
    assert above == math.inf or Fraction(above) >= value
    between_below = math.nextafter(below, math.inf)
    between_above = math.nextafter(above, -math.inf)
    assert between_below == math.inf or Fraction(between_below) > value, (below.hex(), value)
    assert between_above == -math.inf or Fraction(between_above) < value, (above.hex(), value)
    assert (below == above) == (abs(value) <= LARGEST_BINARY64 and Fraction(float(value)) == value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_a_binary64_changes_nothing(value: float) -> None:
    assert round_down(Fraction(value)) == value == round_up(Fraction(value))


def test_rounding_beyond_binary64() -> None:
    largest = float(LARGEST_BINARY64)
    huge = Fraction(10) ** 400
    assert (round_down(huge), round_up(huge)) == (largest, math.inf)
    assert (round_down(-huge), round_up(-huge)) == (-math.inf, -largest)
    assert (round_down(1 / huge), round_up(1 / huge)) == (0.0, 5e-324)
    assert (round_down(-1 / huge), round_up(-1 / huge)) == (-5e-324, 0.0)
    just_above = LARGEST_BINARY64 + 1  # rounds to the largest, not to infinity
    assert (round_down(just_above), round_up(just_above)) == (largest, math.inf)


@given(fractions(3000).map(abs))
def test_square_roots_enclose_within_the_stated_error(value: Fraction) -> None:
    above, below = square_root_up(value), square_root_down(value)
    error = Fraction(1, 2**100)
    assert below**2 <= value <= above**2
    assert above**2 <= value * (1 + error) ** 2
    assert below**2 >= value * (1 - error) ** 2


@pytest.mark.parametrize("root", [Fraction(0), Fraction(1), Fraction(3, 7), Fraction(2) ** 5000, Fraction(1, 3**3000)])
def test_square_roots_of_squares_and_of_big_numbers(root: Fraction) -> None:
    above, below = square_root_up(root**2), square_root_down(root**2)
    assert below <= root <= above <= root * (1 + Fraction(1, 2**100))
    assert below >= root * (1 - Fraction(1, 2**100))


def test_ordinals_count_neighbours() -> None:
    values = torch.from_numpy(np.array([0.0, 2.0**-149, 2.0**-126, 1.0, float(BINARY32.largest), math.inf], np.float32))
    places = ordinals(values)
    assert places.dtype is torch.int32
    assert torch.equal(places, torch.tensor([0, 1, 1 << 23, 127 << 23, INFINITY - 1, INFINITY], dtype=torch.int32))
    assert torch.equal(from_ordinals(places[1:] - 1), torch.nextafter(values[1:], torch.tensor(-1.0)))


def test_ordinals_come_back_and_keep_the_order(rng: np.random.Generator) -> None:
    values = torch.from_numpy(np.abs(wild(100_000, rng)))
    values = values[~values.isnan()].sort().values
    places = ordinals(values)
    assert bool((places[1:] >= places[:-1]).all())
    assert torch.equal(from_ordinals(places), values)
    assert torch.equal(from_ordinals(places.long()), values), "from int64 too"
