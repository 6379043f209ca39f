"""Binary32 as compiled scalar operations: the same step at native speed.

The functions are numba's, to be used inside other compiled functions: pass `jit=numba.njit(...)` (see `jit`) to the
builders of `adam`, and loop over the result.

Claimed: each operation is the IEEE 754 round-to-nearest-even one; nothing is contracted or reassociated, because numba
compiles without fast-math and LLVM then keeps every rounding.  `fma` is LLVM's `llvm.fma.f32`: one instruction where
the CPU has it, the C library's exact `fmaf` elsewhere.  Checked against NumPy bit for bit in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of scalars, dividing by zero as IEEE 754 says."""
    compiled: Callable[..., Any] = numba.njit(error_model="numpy", inline="never")(function)
    return compiled


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401, ARG001 - numba's interface
    """Emit `llvm.fma.f32`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401, ARG001 - as above
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), emit


@jit
def _add(a: Any, b: Any) -> Any:  # noqa: ANN401 - a binary32 scalar, typed by numba
    return a + b


@jit
def _sub(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a - b


@jit
def _mul(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a * b


@jit
def _product(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return np.float64(a) * np.float64(b)


@jit
def _div(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a / b


@jit
def _contracted(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 - as above
    return _fma(a, b, c)  # type: ignore[call-arg]  # numba passes the typing context itself


@jit
def _sqrt(a: Any) -> Any:  # noqa: ANN401 - as above
    return math.sqrt(a)


@jit
def _negate(a: Any) -> Any:  # noqa: ANN401 - as above
    return -a


@final
class CompiledBinary32:
    """The operations as attributes, each a compiled function of binary32 scalars.

    It has no `platform_sqrt`: a vector library's root is called on arrays, between two compiled loops.
    """

    add = staticmethod(_add)
    sub = staticmethod(_sub)
    mul = staticmethod(_mul)
    product = staticmethod(_product)
    div = staticmethod(_div)
    fma = staticmethod(_contracted)
    sqrt = staticmethod(_sqrt)
    negate = staticmethod(_negate)
