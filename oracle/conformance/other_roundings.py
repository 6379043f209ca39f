"""Binary32 as it must not round: ties away from zero, or towards zero; slow and exact.

What a kernel computes that rounds so is needed to say of a wrong answer that its rounding is the slip.

Claimed: each finite result is the exact one (as a fraction) rounded once in the stated way.  Where an operand is not
finite or the exact result is zero, the operation is NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.floats import BINARY32

Array = npt.NDArray[np.float32]
_ROOT_BITS = 80  #: of a root, beyond which only "a little more" is known of it


class Rounding(Enum):
    """Another way to round, in words."""

    TIES_AWAY = "ties rounded away from zero"
    TOWARD_ZERO = "results rounded towards zero"


@final
class OtherRounding:
    """The operations of an update, rounded in another way, on float32 arrays."""

    def __init__(self, rounding: Rounding) -> None:
        """Choose the rounding."""
        self._rounding = rounding
        self._op = NumpyBinary32()

    def constant(self, value: float) -> Array:
        """A 0-d float32 array."""
        return self._op.constant(value)

    def add(self, a: Array, b: Array) -> Array:
        """`a + b`."""
        return self._each(lambda x, y: x + y, self._op.add, a, b)

    def sub(self, a: Array, b: Array) -> Array:
        """`a - b`."""
        return self._each(lambda x, y: x - y, self._op.sub, a, b)

    def mul(self, a: Array, b: Array) -> Array:
        """`a * b`."""
        return self._each(lambda x, y: x * y, self._op.mul, a, b)

    def product(self, a: Array, b: Array) -> Any:  # noqa: ANN401 - float64, not of this arithmetic
        """`a * b`, exactly."""
        return self._op.product(a, b)

    def div(self, a: Array, b: Array) -> Array:
        """`a / b`."""
        return self._each(lambda x, y: x / y if y else None, self._op.div, a, b)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        """`a * b + c`."""
        return self._each(lambda x, y, z: x * y + z, self._op.fma, a, b, c)

    def sqrt(self, a: Array) -> Array:
        """The square root."""
        return self._each(_root, self._op.sqrt, a)

    def platform_sqrt(self, a: Array) -> Array:
        """The platform's square root, which rounds as it does."""
        return self._op.platform_sqrt(a)

    def negate(self, a: Array) -> Array:
        """`-a`."""
        return self._op.negate(a)

    def select_less(self, a: Array, b: Array, if_less: Array, otherwise: Array) -> Array:
        """`if_less` where `a < b`, else `otherwise`."""
        return self._op.select_less(a, b, if_less, otherwise)

    def select_nan(self, a: Array, if_nan: Array, otherwise: Array) -> Array:
        """`if_nan` where `a` is NaN."""
        return self._op.select_nan(a, if_nan, otherwise)

    def _each(self, exactly: Callable[..., Fraction | None], usually: Callable[..., Array], *operands: Array) -> Array:
        operands = tuple(np.broadcast_arrays(*operands))
        results = np.array(usually(*operands), dtype=np.float32)
        for place in np.ndindex(results.shape):
            values = [float(operand[place]) for operand in operands]
            if all(map(math.isfinite, values)):
                exact = exactly(*map(Fraction, values))
                if exact:
                    results[place] = self._rounded(exact)
        return results

    def _rounded(self, exact: Fraction) -> float:
        size = abs(exact)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > size
        spacing = max(Fraction(2) ** (exponent - BINARY32.precision + 1), BINARY32.smallest_subnormal)
        steps = size / spacing
        whole = steps.numerator // steps.denominator
        if self._rounding is Rounding.TIES_AWAY and steps - whole >= Fraction(1, 2):
            whole += 1
        value = whole * spacing
        rounded = math.inf if value > BINARY32.largest else float(value)
        return math.copysign(rounded, exact)


def _root(x: Fraction) -> Fraction | None:
    """A root that rounds as the exact one: of an irrational root, a little more than its first bits."""
    if x <= 0:
        return None
    shift = 2 * (_ROOT_BITS + x.denominator.bit_length())
    scaled = (x.numerator << shift) // x.denominator
    root = math.isqrt(scaled)
    exact = root * root * x.denominator == x.numerator << shift
    return Fraction(2 * root + (not exact), 2 << (shift // 2))
