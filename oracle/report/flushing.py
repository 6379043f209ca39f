"""Binary32 with flush-to-zero: each operation of another arithmetic, its subnormal operands and result made zero.

For counterexamples only: what a run does whose processor is set so.  Claimed: nothing about any one processor's order
of flushing and rounding; a result that rounds up to the smallest normal number is kept here.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from guarded_moments.reference.arithmetic import NumpyBinary32

Array = npt.NDArray[np.float32]
_SMALLEST_NORMAL = 2.0**-126


@final
class FlushingBinary32:
    """An `Arithmetic` of float32 arrays."""

    def __init__(self) -> None:
        self._op = NumpyBinary32()

    def constant(self, value: float) -> Array:
        """Flushed, too."""
        return flushed(self._op.constant(value))

    def add(self, a: Array, b: Array) -> Array:
        """`a + b`."""
        return flushed(self._op.add(flushed(a), flushed(b)))

    def sub(self, a: Array, b: Array) -> Array:
        """`a - b`."""
        return flushed(self._op.sub(flushed(a), flushed(b)))

    def mul(self, a: Array, b: Array) -> Array:
        """`a * b`."""
        return flushed(self._op.mul(flushed(a), flushed(b)))

    def product(self, a: Array, b: Array) -> Array:
        """`a * b` in float64; only the operands are flushed."""
        return self._op.product(flushed(a), flushed(b))

    def div(self, a: Array, b: Array) -> Array:
        """`a / b`."""
        return flushed(self._op.div(flushed(a), flushed(b)))

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        """`a * b + c`."""
        return flushed(self._op.fma(flushed(a), flushed(b), flushed(c)))

    def sqrt(self, a: Array) -> Array:
        """The correctly rounded root."""
        return self._op.sqrt(flushed(a))

    def platform_sqrt(self, a: Array) -> Array:
        """The platform's root."""
        return self._op.platform_sqrt(flushed(a))

    def negate(self, a: Array) -> Array:
        """`-a`."""
        return self._op.negate(a)

    def select_less(self, a: Array, b: Array, if_less: Array, otherwise: Array) -> Array:
        """`if_less` where `a < b`."""
        return self._op.select_less(a, b, if_less, otherwise)

    def select_nan(self, a: Array, if_nan: Array, otherwise: Array) -> Array:
        """`if_nan` where `a` is NaN."""
        return self._op.select_nan(a, if_nan, otherwise)


def flushed(values: Any) -> Array:  # noqa: ANN401 - arrays and NumPy's scalars
    """Subnormal numbers replaced by zero of their sign."""
    kept: Array = np.where(np.abs(values) < _SMALLEST_NORMAL, np.copysign(np.float32(0), values), values)
    return kept
