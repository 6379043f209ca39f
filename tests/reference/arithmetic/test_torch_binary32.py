"""torch's binary32 operations round once, and are NumPy's; the platform's root is within a unit, and monotone."""

from collections import Counter

import numpy as np
import pytest
import torch
from tests.reference.arithmetic.operations import (
    DOUBLE_ROUNDING,
    OPERATIONS,
    Operation,
    differing,
    first_difference,
    naive_fma,
    operands,
    tensors,
)
from tests.strategies import INFINITY, NAN, SIGN, SMALLEST_NORMAL, Array, bits_of, floats_of, wild, wild_tensor

from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary32
from guarded_moments.reference.floats import hex_of

pytestmark = pytest.mark.usefixtures("one_thread")

OP = TorchBinary32()
NUMPY = NumpyBinary32()


def on_arrays(name: str) -> Operation:
    """The operation, from arrays to an array."""

    def operation(*values: Array) -> Array:
        result: torch.Tensor = getattr(OP, name)(*tensors(values))
        assert result.dtype is torch.float32
        return result.numpy()

    return operation


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_rounds_once(name: str, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    values = operands(name, 5_000 * budget, rng)
    assert first_difference(name, on_arrays(name), values) is None
    compared["torch's operations with exact rationals"] += values[0].size


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_numpys(name: str, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    for _ in range(budget):
        values = operands(name, 1_000_000, rng)
        expected = getattr(NUMPY, name)(*values)
        where = differing(on_arrays(name)(*values), expected).nonzero()[0]
        assert not where.size, ", ".join(hex_of(float(value[where[0]])) for value in values)
        compared["torch's operations with NumPy's"] += expected.size
        assert expected.size >= 1_000_000


@pytest.mark.parametrize("kind", DOUBLE_ROUNDING)
def test_fma_where_two_roundings_are_wrong(kind: str, rng: np.random.Generator) -> None:
    values = DOUBLE_ROUNDING[kind](2000, rng)
    assert first_difference("fma", on_arrays("fma"), values) is None
    wrong = differing(naive_fma(*values), on_arrays("fma")(*values)).mean()
    assert wrong > (0.3 if kind == "just beside half" else 0.999), "these operands do not separate one from two"


@pytest.mark.parametrize("first", [0, SMALLEST_NORMAL - 500_000, 0x3F7F0000, 0x40000000, INFINITY - 1_000_000])
def test_the_platforms_root_of_neighbours_is_close_and_monotone(
    first: int, budget: int, compared: Counter[str]
) -> None:
    values = floats_of(np.arange(first, min(first + 1_000_000 * budget, INFINITY + 1)))
    _check_root(values)
    compared["the platform's root, to a unit"] += values.size


def test_the_platforms_root_of_any_number_is_close_and_monotone(
    rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    values = np.hstack(
        (np.abs(wild(500_000 * budget, rng)), floats_of(rng.integers(INFINITY, size=1_000_000 * budget)))
    )
    values = np.sort(values[~np.isnan(values)])
    _check_root(values)
    compared["the platform's root, to a unit"] += values.size


def _check_root(ascending: Array) -> None:
    correct = bits_of(NUMPY.sqrt(ascending)).astype(np.int64)
    root = bits_of(on_arrays("platform_sqrt")(ascending)).astype(np.int64)
    worst = int(np.abs(root - correct).argmax())
    assert abs(root[worst] - correct[worst]) <= 1, (
        f"sqrt({hex_of(float(ascending[worst]))}) = {root[worst]:08x}, correctly rounded {correct[worst]:08x}"
    )
    falls = (np.diff(root) < 0).nonzero()[0]
    assert not falls.size, f"sqrt falls after {hex_of(float(ascending[falls[0]]))}"


def test_the_platforms_root_outside_the_positive_numbers() -> None:
    values = floats_of((0, SIGN, INFINITY, INFINITY | SIGN, NAN, 0xBF800000, 1 | SIGN))
    root = on_arrays("platform_sqrt")(values)
    assert bits_of(root)[:3].tolist() == [0, SIGN, INFINITY]
    assert np.isnan(root[3:]).all()


@pytest.mark.parametrize("layout", ["contiguous", "every second", "transposed"])
def test_the_platforms_root_is_torchs_in_every_layout(layout: str, rng: np.random.Generator) -> None:
    values = wild_tensor(100_200, rng).reshape(300, 334)
    values = {"contiguous": values, "every second": values[:, ::2], "transposed": values.T}[layout]
    expected = values.sqrt().contiguous().view(torch.int32)
    assert torch.equal(OP.platform_sqrt(values).contiguous().view(torch.int32), expected)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 3)])
def test_results_have_the_shape_of_their_operands(shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 2.0)
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
    assert {name: tuple(result.shape) for name, result in results.items()} == dict.fromkeys(results, shape)
    assert {name: result.dtype for name, result in results.items()} == dict.fromkeys(results, torch.float32)


#: Rounded twice, `A*B + C` is a tie, and the corrected element must be found in any shape.
A, B, C, ONCE = 1 + 2.0**-20, (1 - 2.0**-20) * 2.0**-24, 1 + 2.0**-23, 1 + 2.0**-23


@pytest.mark.parametrize("a_shape", [(), (1,), (4,), (3, 1)])
@pytest.mark.parametrize("c_shape", [(), (1,), (4,), (3, 1)])
def test_fma_corrects_what_was_broadcast(a_shape: tuple[int, ...], c_shape: tuple[int, ...]) -> None:
    a, b, c = torch.full(a_shape, A), torch.tensor(B), torch.full(c_shape, C)
    result = OP.fma(a, b, c)
    assert tuple(result.shape) == np.broadcast_shapes(a_shape, c_shape)
    assert bool((result == ONCE).all()), result


def test_fma_of_expanded_and_strided_tensors() -> None:
    a, b, c = torch.tensor([A]).expand(5), torch.full((10,), B)[::2], torch.full((5, 5), C).T
    assert bool((OP.fma(a, b, c) == ONCE).all())


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_fma_of_strided_tensors_of_any_size(size: int, stride: int) -> None:
    """A single element counts as dense whatever its stride, and conversions keep that stride."""
    values = torch.arange(1, 1 + 3 * size * stride, dtype=torch.float32)
    a, b, c = (values[begin * size * stride :][: size * stride : stride] for begin in range(3))
    expected = TorchBinary32().fma(*(operand.clone(memory_format=torch.contiguous_format) for operand in (a, b, c)))
    assert torch.equal(TorchBinary32().fma(a, b, c), expected)


def test_fma_leaves_its_operands_alone() -> None:
    operands_before = [torch.full((3,), x) for x in (A, B, C)]
    values = [x.clone() for x in operands_before]
    OP.fma(*values)
    assert all(torch.equal(x, y) for x, y in zip(values, operands_before, strict=True))


def test_negation_flips_the_sign_bit_alone(rng: np.random.Generator) -> None:
    values = wild(10_000, rng)
    assert np.array_equal(bits_of(on_arrays("negate")(values)), bits_of(values) ^ np.uint32(SIGN))


def test_selections() -> None:
    nan = float("nan")
    a = torch.tensor([0.0, 1.0, nan, 1.0, -0.0, 0.0])
    b = torch.tensor([1.0, 0.0, 1.0, nan, 0.0, 0.0])
    yes, no = torch.ones(6), torch.zeros(6)
    assert OP.select_less(a, b, yes, no).tolist() == [1, 0, 0, 0, 0, 0]
    assert OP.select_nan(a, yes, no).tolist() == [0, 0, 1, 0, 0, 0]


def test_a_constant_is_itself() -> None:
    for value in (1.5, -0.0, 2.0**-149, float("inf")):
        constant = OP.constant(value)
        assert (constant.shape, constant.dtype) == ((), torch.float32)
        assert hex_of(float(constant)) == hex_of(value)
