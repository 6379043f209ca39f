"""Binary64 as compiled scalar operations: the guard and the search at native speed, from the same source.

Claimed: each method is one rounding (numba compiles without fast-math, so nothing is contracted or reassociated); the
root is correctly rounded.  `minimum` and `maximum` are for numbers, not for NaN.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from guarded_moments.reference.arithmetic.compiled_binary32 import jit


@jit
def _add(a: Any, b: Any) -> Any:  # noqa: ANN401 - a binary64 scalar, typed by numba
    return a + b


@jit
def _sub(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a - b


@jit
def _mul(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a * b


@jit
def _div(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return a / b


@jit
def _sqrt(a: Any) -> Any:  # noqa: ANN401 - as above
    return math.sqrt(a)


@jit
def _distance(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return abs(a - b)


@jit
def _absolute(a: Any) -> Any:  # noqa: ANN401 - as above
    return abs(a)


@jit
def _negate(a: Any) -> Any:  # noqa: ANN401 - as above
    return -a


@jit
def _minimum(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return min(a, b)


@jit
def _maximum(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    return max(a, b)


@jit
def _nearest(a: Any) -> Any:  # noqa: ANN401 - as above
    return np.float64(np.float32(a))


@jit
def _select_less(a: Any, b: Any, if_less: Any, otherwise: Any) -> Any:  # noqa: ANN401 - as above
    return if_less if a < b else otherwise


@final
class CompiledBinary64:
    """The operations as attributes, each a compiled function of binary64 scalars."""

    add = staticmethod(_add)
    sub = staticmethod(_sub)
    mul = staticmethod(_mul)
    div = staticmethod(_div)
    sqrt = staticmethod(_sqrt)
    distance = staticmethod(_distance)
    absolute = staticmethod(_absolute)
    negate = staticmethod(_negate)
    minimum = staticmethod(_minimum)
    maximum = staticmethod(_maximum)
    nearest = staticmethod(_nearest)
    select_less = staticmethod(_select_less)

    @staticmethod
    def constant(value: float) -> float:
        """A Python float: numba takes it as a binary64 constant."""
        return float(value)
