"""NumPy's binary32 operations round once."""

from collections import Counter

import numpy as np
import pytest
import torch
from tests.reference.arithmetic.operations import (
    DOUBLE_ROUNDING,
    OPERATIONS,
    differing,
    first_difference,
    naive_fma,
    operands,
)
from tests.strategies import NAN, SIGN, bits_of, floats_of, wild

from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.floats import hex_of

pytestmark = pytest.mark.usefixtures("one_thread")

OP = NumpyBinary32()


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_rounds_once(name: str, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    values = operands(name, 5_000 * budget, rng)
    assert first_difference(name, getattr(OP, name), values) is None
    compared["NumPy's operations with exact rationals"] += values[0].size


@pytest.mark.parametrize("kind", DOUBLE_ROUNDING)
def test_fma_where_two_roundings_are_wrong(kind: str, rng: np.random.Generator) -> None:
    values = DOUBLE_ROUNDING[kind](2000, rng)
    assert first_difference("fma", OP.fma, values) is None
    wrong = differing(naive_fma(*values), OP.fma(*values)).mean()
    assert wrong > (0.3 if kind == "just beside half" else 0.999), "these operands do not separate one from two"


def test_the_platforms_root_is_torchs(rng: np.random.Generator) -> None:
    values = wild(1_000_003, rng)
    expected = torch.from_numpy(values).sqrt().numpy()
    assert np.array_equal(bits_of(OP.platform_sqrt(values)), bits_of(expected))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 3)])
def test_results_have_the_shape_of_their_operands(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2, np.float32)
    results = {
        "add": OP.add(x, x),
        "sub": OP.sub(x, x),
        "mul": OP.mul(x, x),
        "div": OP.div(x, x),
        "fma": OP.fma(x, x, x),
        "sqrt": OP.sqrt(x),
        "platform_sqrt": OP.platform_sqrt(x),
        "negate": OP.negate(x),
        "select_less": OP.select_less(x, x, x, x),
        "select_nan": OP.select_nan(x, x, x),
    }
    assert {name: np.shape(result) for name, result in results.items()} == dict.fromkeys(results, shape)
    assert {name: result.dtype for name, result in results.items()} == dict.fromkeys(results, np.dtype(np.float32))


def test_fma_broadcasts() -> None:
    row, column = np.arange(4, dtype=np.float32), np.arange(3, dtype=np.float32)[:, None]
    assert np.array_equal(OP.fma(row, OP.constant(2.0), column), row * 2 + column)
    assert np.array_equal(OP.fma(OP.constant(2.0), OP.constant(3.0), row), row + 6)


def test_fma_leaves_its_operands_alone() -> None:
    a, b, c = (np.array([x], np.float32) for x in (1 + 2.0**-20, (1 - 2.0**-20) * 2.0**-24, 1 + 2.0**-23))
    before = [x.copy() for x in (a, b, c)]
    OP.fma(a, b, c)
    assert all(np.array_equal(x, y) for x, y in zip((a, b, c), before, strict=True))


def test_the_platforms_root_of_a_read_only_or_strided_array() -> None:
    values = np.arange(10, dtype=np.float32)
    values.flags.writeable = False
    assert np.array_equal(OP.platform_sqrt(values[::2]), torch.arange(0, 10, 2).float().sqrt().numpy())
    assert np.array_equal(OP.platform_sqrt(values), torch.arange(10).float().sqrt().numpy())


def test_negation_flips_the_sign_bit_alone(rng: np.random.Generator) -> None:
    values = wild(10_000, rng)
    assert np.array_equal(bits_of(OP.negate(values)), bits_of(values) ^ np.uint32(SIGN))


def test_selections() -> None:
    nan, zero, minus_zero, one = floats_of((NAN, 0, SIGN, 0x3F800000))
    a = np.array([zero, one, nan, one, minus_zero, zero])
    b = np.array([one, zero, one, nan, zero, zero])
    yes, no = np.full(6, 1, np.float32), np.full(6, 0, np.float32)
    assert OP.select_less(a, b, yes, no).tolist() == [1, 0, 0, 0, 0, 0]
    assert OP.select_nan(a, yes, no).tolist() == [0, 0, 1, 0, 0, 0]
    assert bits_of(OP.select_less(b, a, a, b))[4] == 0, "of two zeros neither is less"


def test_selections_of_signalling_nan_warn_of_nothing() -> None:
    signalling = floats_of((0x7F800001, 0xFF800001))
    assert OP.select_less(signalling, signalling, signalling, OP.constant(1.0)).tolist() == [1, 1]
    assert OP.select_nan(signalling, OP.constant(2.0), signalling).tolist() == [2, 2]


def test_a_constant_is_itself() -> None:
    for value in (1.5, -0.0, 2.0**-149, float("inf")):
        constant = OP.constant(value)
        assert constant.shape == ()
        assert constant.dtype == np.float32
        assert hex_of(float(constant)) == hex_of(value)
