"""Binary32 and binary64 as operations of Triton: the same step and guard as GPU kernels, or in Triton's interpreter.

The builders of `adam` and `guard` take `jit`, which makes a Triton function of any function of theirs; in the
interpreter they stay what they are.

    written in Triton   becomes on a GPU        so here
    a / b               div.full.f32: approximate   tl.div_rn; binary64 divides correctly as it is
    tl.sqrt(a)          sqrt.approx.ftz.f32         tl.sqrt_rn; binary64 as it is
    a * b + c           fma, or not: an option      kernels are compiled with `enable_fp_fusion=False`: see `OPTIONS`
    tl.fma(a, b, c)     fma.rn.f32                  that
    -a                  0 - a: zero loses its sign  the sign's bit turned

Claimed: each operation is the IEEE 754 round-to-nearest-even one, subnormals included, in kernels that are compiled
with `OPTIONS`; the tests read the machine code.  In the interpreter, which rounds an fma twice, it is NumPy's here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import triton
import triton.language as tl

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.numpy_binary32 import NumpyBinary32

#: What every kernel is compiled with: the default of the first changes between versions of Triton.
OPTIONS: Mapping[str, Any] = MappingProxyType({"enable_fp_fusion": False})


_SIGN = tl.constexpr(-(1 << 31))  #: bit of a binary32's sign, as an int32


def jit(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function of Triton
    """Compile a function of scalars or blocks, nested or not: Triton evaluates annotations, and ours are not its."""
    compiled = triton.jit(function)
    tree = ast.parse(compiled.src)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and "constexpr" not in ast.unparse(node.annotation or ast.Constant("")):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
    compiled._unsafe_update_src(ast.unparse(tree))  # noqa: SLF001 - nothing has compiled or called it yet
    return compiled


def _add(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by Triton, as all below
    return a + b


def _sub(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a - b


def _mul(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a * b


def _product(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a.to(tl.float64) * b.to(tl.float64)


def _div_binary32(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.div_rn(a, b)


def _div_binary64(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a / b


def _fma(a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.fma(a, b, c)


def _fma_interpreted(a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """In one rounding: the interpreter's own has two."""
    from triton.runtime.interpreter import TensorHandle  # noqa: PLC0415 - there only where the interpreter is

    result = np.asarray(NumpyBinary32().fma(*(operand.handle.data for operand in (a, b, c))))
    shaped = next((operand.type for operand in (a, b, c) if operand.type.is_block()), a.type)
    return tl.tensor(TensorHandle(result, tl.float32), shaped)


def _sqrt_binary32(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.sqrt_rn(a)


def _sqrt_binary64(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.sqrt(a)


def _negate(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return (a.to(tl.int32, bitcast=True) ^ _SIGN).to(tl.float32, bitcast=True)


def _distance(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.abs(a - b)


def _absolute(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.abs(a)


def _minimum(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.minimum(a, b)


def _maximum(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.maximum(a, b)


def _running_sum(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return tl.cumsum(a, 0)


def _running_sum_interpreted(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The interpreter knows no functions that were made for the compiler, as `tl.cumsum` is."""
    from triton.runtime.interpreter import TensorHandle  # noqa: PLC0415 - there only where the interpreter is

    return tl.tensor(TensorHandle(np.cumsum(a.handle.data, dtype=a.handle.data.dtype), a.dtype), a.type)


@cache
def running_sum(*, interpreted: bool) -> Callable[..., Any]:
    """The sums of a block of integers up to each of them."""
    result: Callable[..., Any] = _running_sum_interpreted if interpreted else jit(_running_sum)
    return result


class TritonBinary32:
    """What an op model needs, but for a platform's root, which no GPU has.

    Args:
        interpreted: for the interpreter, and not to be compiled.
    """

    def __init__(self, *, interpreted: bool) -> None:
        make: Jit = as_is if interpreted else jit
        self.add, self.sub, self.mul, self.product = (make(f) for f in (_add, _sub, _mul, _product))
        self.div, self.sqrt, self.negate = (make(f) for f in (_div_binary32, _sqrt_binary32, _negate))
        self.fma = _fma_interpreted if interpreted else jit(_fma)


class TritonBinary64:
    """What a guard needs.  `minimum` and `maximum` are for numbers, not for NaN.

    Args:
        interpreted: as above.
    """

    def __init__(self, *, interpreted: bool) -> None:
        make: Jit = as_is if interpreted else jit
        self.add, self.mul, self.div = (make(f) for f in (_add, _mul, _div_binary64))
        self.sqrt, self.distance, self.absolute = (make(f) for f in (_sqrt_binary64, _distance, _absolute))
        self.minimum, self.maximum = make(_minimum), make(_maximum)
        self._interpreted = interpreted

    def constant(self, value: float) -> Any:  # noqa: ANN401 - a number, or Triton's constant
        """A constant of the formula."""
        return float(value) if self._interpreted else tl.constexpr(float(value))
