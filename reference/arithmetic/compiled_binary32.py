"""Binary32 as compiled scalar operations: the same step at native speed.

The functions are numba's, to be used inside other compiled functions: pass `jit=numba.njit(...)` (see
`compiled_operations.jit`) to the builders of `adam`, and loop over the result.

Claimed: see `compiled_operations`; `fma` is LLVM's `llvm.fma.f32`: one instruction where the CPU has it, the C
library's exact `fmaf` elsewhere.  Checked against NumPy bit for bit in the tests.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from guarded_moments.reference.arithmetic.compiled_operations import CompiledOperations, jit
from guarded_moments.reference.floats import round_to_normal


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401, ARG001 - numba's interface
    """Emit `llvm.fma.f32`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401, ARG001 - as above
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), emit


@jit
def _product(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return np.float64(a) * np.float64(b)


@jit
def _contracted(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 - as above
    return _fma(a, b, c)  # type: ignore[call-arg]  # numba passes the typing context itself


@final
class CompiledBinary32(CompiledOperations):
    """The operations as attributes, each a compiled function of binary32 scalars.

    It has no `platform_sqrt`: a vector library's root is called on arrays, between two compiled loops.
    """

    product = staticmethod(_product)
    fma = staticmethod(_contracted)

    @staticmethod
    def constant(value: float) -> np.float32:
        """The nearest binary32 that is normal (see `round_to_normal`): numba takes it as a constant."""
        return np.float32(round_to_normal(value))
