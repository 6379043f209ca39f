"""The tests' own exact arithmetic, held against the hardware where the hardware cannot round twice."""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.reference.arithmetic.exact_binary32 import round_to_nearest_even
from tests.reference.arithmetic.operations import (
    DOUBLE_ROUNDING,
    Operation,
    first_difference,
    naive_fma,
    operands,
)
from tests.strategies import INFINITY


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (Fraction(1), 0x3F800000),
        (Fraction(-1), 0xBF800000),
        (1 + Fraction(1, 2**24), 0x3F800000),
        (1 + Fraction(3, 2**24), 0x3F800002),
        (1 + Fraction(1, 2**24) + Fraction(1, 2**300), 0x3F800001),
        (2 - Fraction(1, 2**24), 0x40000000),
        (Fraction(1, 2**149), 1),
        (Fraction(1, 2**150), 0),
        (Fraction(1, 2**150) + Fraction(1, 2**300), 1),
        (Fraction(-3, 2**150), 0x80000002),
        (Fraction(1, 2**126) - Fraction(1, 2**150), 0x00800000),
        (Fraction(2**128 - 2**103), INFINITY),
        (Fraction(2**128 - 2**103 - 1), INFINITY - 1),
    ],
)
def test_rounding_to_nearest_even(value: Fraction, bits: int) -> None:
    assert round_to_nearest_even(value) == bits


@pytest.mark.parametrize(
    ("name", "hardware"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("sqrt", np.sqrt)],
)
def test_it_is_what_the_hardware_does(name: str, hardware: Operation, rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        assert first_difference(name, hardware, operands(name, 1000, rng)) is None


@pytest.mark.parametrize("kind", DOUBLE_ROUNDING)
def test_it_tells_two_roundings_from_one(kind: str, rng: np.random.Generator) -> None:
    for values in zip(*DOUBLE_ROUNDING[kind](64, rng), strict=True):
        one = tuple(np.array([value]) for value in values)
        assert kind == "just beside half" or first_difference("fma", naive_fma, one)


def test_a_rounding_in_the_wrong_direction_is_seen(rng: np.random.Generator) -> None:
    def up(a: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        with np.errstate(all="ignore"):
            return np.nextafter(np.sqrt(a), np.float32(math.inf))

    assert first_difference("sqrt", up, operands("sqrt", 10, rng))
