"""Binary32 on NumPy arrays: the readable reference.

Claimed: each method returns the IEEE 754 round-to-nearest-even result, subnormals, infinities and NaN included
(NaN payloads are not modelled).  Trusted: the CPU's and NumPy's binary32 and binary64 `+ - * / sqrt`.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.float32]


@final
class NumpyBinary32:
    """Rounded binary32 operations on float32 arrays of any shape; operands broadcast."""

    def constant(self, value: float) -> Array:
        """A 0-d float32 array."""
        return np.asarray(np.float32(value))

    def add(self, a: Array, b: Array) -> Array:
        """`a + b`."""
        with np.errstate(all="ignore"):
            return np.add(a, b)

    def sub(self, a: Array, b: Array) -> Array:
        """`a - b`."""
        with np.errstate(all="ignore"):
            return np.subtract(a, b)

    def mul(self, a: Array, b: Array) -> Array:
        """`a * b`."""
        with np.errstate(all="ignore"):
            return np.multiply(a, b)

    def product(self, a: Array, b: Array) -> Array:
        """`a * b` in float64, which holds it exactly."""
        with np.errstate(all="ignore"):
            exact: Array = np.multiply(a, b, dtype=np.float64)
            return exact

    def div(self, a: Array, b: Array) -> Array:
        """`a / b`."""
        with np.errstate(all="ignore"):
            return np.divide(a, b)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        """`a * b + c` rounded once, by rounding to odd in binary64.

        A product of two binary32 is exact in binary64.  Its sum with `c` is rounded to odd, so that rounding that
        sum to binary32 gives the same as rounding the exact value (Boldo and Melquiond, "Emulation of FMA and
        correctly rounded sums", IEEE Trans. Computers 57(4), 2008).
        """
        with np.errstate(all="ignore"):
            product = np.multiply(a, b, dtype=np.float64)
            addend = np.asarray(c, dtype=np.float64)
            total = np.atleast_1d(np.add(product, addend))
            back = total - product
            error = np.atleast_1d((product - (total - back)) + (addend - back))
            bits = total.view(np.int64)
            inexact_and_even = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
            away = (error > 0) == (total > 0)
            bits += np.where(inexact_and_even, np.where(away, 1, -1), 0)
            return np.asarray(total.astype(np.float32)).reshape(np.broadcast_shapes(np.shape(product), np.shape(c)))

    def sqrt(self, a: Array) -> Array:
        """The correctly rounded square root."""
        with np.errstate(all="ignore"):
            return np.asarray(np.sqrt(a))

    def platform_sqrt(self, a: Array) -> Array:
        """`torch.sqrt` on CPU."""
        root: Array = torch.tensor(a).sqrt().numpy()  # of a copy: `a` may be strided, read-only or 0-d
        return root

    def negate(self, a: Array) -> Array:
        """`-a`."""
        return np.negative(a)

    def select_less(self, a: Array, b: Array, if_less: Array, otherwise: Array) -> Array:
        """`if_less` where `a < b`, else `otherwise`."""
        return np.where(np.less(a, b), if_less, otherwise)

    def select_nan(self, a: Array, if_nan: Array, otherwise: Array) -> Array:
        """`if_nan` where `a` is NaN."""
        return np.where(np.isnan(a), if_nan, otherwise)
