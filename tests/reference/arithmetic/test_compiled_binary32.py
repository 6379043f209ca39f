"""The compiled scalar operations are NumPy's, and so is a whole update compiled from the one source."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from tests.reference.arithmetic.operations import OPERATIONS, differing, operands
from tests.strategies import Array, wild, wild_states

from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.arithmetic.compiled_operations import jit
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import SquareRoot

NUMPY = NumpyBinary32()
ADAM = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False)
MODELS = {
    model.name: (model, known.scalars(ADAM, 7))
    for known in IMPLEMENTATIONS.values()
    for model in known.models
    if model.square_root is SquareRoot.CORRECT  # a vector library's root cannot be compiled into a scalar loop
}


def over_arrays(operation: Callable[..., Any], count: int) -> Callable[..., None]:
    """A compiled loop that applies a compiled operation of `count` scalars."""

    @numba.njit
    def unary(result: Any, a: Any) -> None:  # noqa: ANN401 - typed by numba
        for i in range(a.size):
            result[i] = operation(a[i])

    @numba.njit
    def binary(result: Any, a: Any, b: Any) -> None:  # noqa: ANN401 - as above
        for i in range(a.size):
            result[i] = operation(a[i], b[i])

    @numba.njit
    def ternary(result: Any, a: Any, b: Any, c: Any) -> None:  # noqa: ANN401 - as above
        for i in range(a.size):
            result[i] = operation(a[i], b[i], c[i])

    loop: Callable[..., None] = (unary, binary, ternary)[count - 1]
    return loop


@pytest.mark.parametrize("name", [*OPERATIONS, "negate"])
def test_each_operation_is_numpys(name: str, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    values: tuple[Array, ...]
    for _ in range(budget):
        values = (wild(1_000_000, rng),) if name == "negate" else operands(name, 200_000, rng)
        result = np.empty_like(values[0])
        over_arrays(getattr(CompiledBinary32, name), len(values))(result, *values)
        where = differing(result, getattr(NUMPY, name)(*values)).nonzero()[0]
        assert not where.size, ", ".join(hex_of(float(value[where[0]])) for value in values)
        compared["compiled operations with NumPy's"] += result.size


def test_the_product_is_exact(rng: np.random.Generator) -> None:
    a, b = operands("mul", 100_000, rng)
    result = np.empty(a.shape, np.float64)
    over_arrays(CompiledBinary32.product, 2)(result, a, b)
    assert np.array_equal(result, NUMPY.product(a, b), equal_nan=True)


#: Each takes seconds to compile, so the ordinary run has those whose operations differ most.
FEW = ("torch-2.13-cpu-avx2/fused/body", "torch-2.14-cuda/single")


def test_a_compiled_update_is_numpys(rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    for name in FEW if budget == 1 else MODELS:
        model, scalars = MODELS[name]
        _, g, m, v, _ = (row.numpy() for row in wild_states(200_000, rng))
        in_numpy: Callable[..., np.ndarray[Any, Any]] = make_update(NUMPY, model, StepOptions())
        expected = in_numpy(m, v, g, Scalars(*(NUMPY.constant(value) for value in scalars)))
        scalar_operations: Any = CompiledBinary32  # of scalars that numba types
        compiled = make_update(scalar_operations, model, StepOptions(), jit)
        result = np.empty(expected.shape, expected.dtype)
        _loop_of_updates(compiled)(result, m, v, g, Scalars(*(np.float32(value) for value in scalars)))
        same = (result == expected) & (np.signbit(result) == np.signbit(expected))
        wrong = ~(same | (np.isnan(result) & np.isnan(expected)))
        assert not wrong.any(), (name, [hex_of(float(row[wrong][0])) for row in (m, v, g)])
        compared["compiled updates with NumPy's"] += result.size


def _loop_of_updates(update: Callable[..., Any]) -> Callable[..., None]:
    @numba.njit
    def loop(result: Any, m: Any, v: Any, g: Any, k: Any) -> None:  # noqa: ANN401 - typed by numba
        for i in range(g.size):
            result[i] = update(m[i], v[i], g[i], k)

    applied: Callable[..., None] = loop
    return applied
