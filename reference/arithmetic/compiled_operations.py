"""Rounded operations as compiled scalar functions, of binary32 or binary64: numba types them by their operands.

They are to be used inside other compiled functions.

Claimed: each is one rounding in the format of its operands (numba compiles without fast-math, so nothing is contracted
or reassociated); the root is correctly rounded.  `minimum` and `maximum` are for numbers, not for NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of scalars, dividing by zero as IEEE 754 says."""
    compiled: Callable[..., Any] = numba.njit(error_model="numpy", inline="never")(function)
    return compiled


@jit
def add(a: Any, b: Any) -> Any:  # noqa: ANN401 - a scalar, typed by numba
    """`a + b`."""
    return a + b


@jit
def sub(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """`a - b`."""
    return a - b


@jit
def mul(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """`a * b`."""
    return a * b


@jit
def div(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """`a / b`."""
    return a / b


@jit
def sqrt(a: Any) -> Any:  # noqa: ANN401 - as above
    """The square root."""
    return math.sqrt(a)


@jit
def distance(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """`|a - b|`."""
    return abs(a - b)


@jit
def absolute(a: Any) -> Any:  # noqa: ANN401 - as above
    """`|a|`."""
    return abs(a)


@jit
def negate(a: Any) -> Any:  # noqa: ANN401 - as above
    """`-a`."""
    return -a


@jit
def minimum(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """The smaller."""
    return min(a, b)


@jit
def maximum(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
    """The larger."""
    return max(a, b)


class CompiledOperations:
    """What the formats have in common, as attributes."""

    add = staticmethod(add)
    sub = staticmethod(sub)
    mul = staticmethod(mul)
    div = staticmethod(div)
    sqrt = staticmethod(sqrt)
    distance = staticmethod(distance)
    absolute = staticmethod(absolute)
    negate = staticmethod(negate)
    minimum = staticmethod(minimum)
    maximum = staticmethod(maximum)
