"""Binary32 on torch tensors: the reference, vectorised, on any device.

Claimed: each method returns the IEEE 754 round-to-nearest-even result (NaN payloads are not modelled).
Trusted: torch's elementwise `+ - * /` in float32 and float64 (each checked against NumPy in the tests).
`torch.sqrt` is *not* trusted to round correctly: `sqrt` goes through binary64, `platform_sqrt` is `torch.sqrt`.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

#: A binary64 has 29 bits below binary32.  Where they are a one and zeros it lies half way between two binary32
#: neighbours; shifted to the top of an int32, by this factor, they are then the smallest one.  A binary64's upper
#: half becomes the smallest, too, only at magnitudes of `2**-255` and `2**257`, both far outside of binary32.
_SHIFT = 1 << (32 - 29)
_MIDPOINT = -(1 << 31)
_SMALLEST_NORMAL = 2.0**-126
_SCALAR = torch.Size()


@final
class TorchBinary32:
    """Rounded binary32 operations on float32 tensors of any shape; operands broadcast."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        """Operate on tensors of `device`; constants are made there."""
        self._device = torch.device(device)
        self._shift = torch.tensor(_SHIFT, dtype=torch.int32, device=self._device)

    def constant(self, value: float) -> Tensor:
        """A 0-d float32 tensor."""
        return torch.tensor(value, dtype=torch.float32, device=self._device)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """`a + b`."""
        return a + b

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        """`a - b`."""
        return a - b

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """`a * b`."""
        return a * b

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """`a * b` in float64, which holds it exactly."""
        return a.double() * b.double()

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """`a / b`; both are tensors, so no device turns this into a product with a reciprocal."""
        return a / b

    def fma(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """`a * b + c` rounded once.

        The product is exact in binary64.  Rounding its sum with `c` to binary64 and then to binary32 differs from
        one rounding only where the binary64 sum is inexact and lands on a midpoint of binary32, or is subnormal
        there; those elements are redone with the sum rounded to odd.
        """
        first, second, addend = a.double(), b.double(), c.double()
        # The product is exact, so contracted or not is the same; in place where the shapes allow, to stay in cache.
        in_place = {first.shape, second.shape} <= {addend.shape, _SCALAR}
        total = addend.addcmul_(first, second) if in_place else torch.addcmul(addend, first, second)
        result = total.float()
        if total.numel() == 0:
            return result
        # Minima over the block first, of both halves of each binary64 as they lie, with the factor as a tensor:
        # comparing element by element, or converting, costs more than the rest of this method.
        magnitude = result.abs()
        dense = (
            total if total.dim() == 1 and total.stride(0) == 1 else total.clone(memory_format=torch.contiguous_format)
        )
        halves = dense.reshape(-1).view(torch.int32)
        if (halves * self._shift).amin().item() != _MIDPOINT and magnitude.amin().item() > _SMALLEST_NORMAL:
            return result
        below = total.view(torch.int64).to(torch.int32).mul_(_SHIFT)
        suspicious = (below == _MIDPOINT) | ((magnitude <= _SMALLEST_NORMAL) & (total != 0))
        if bool(suspicious.any()):
            where = torch.atleast_1d(suspicious).nonzero(as_tuple=True)
            parts = (first, second, c.double(), total)  # `addend` may be overwritten
            x, y, z, of_all = (torch.atleast_1d(part.expand_as(total))[where] for part in parts)
            torch.atleast_1d(result)[where] = _round_to_odd(
                x * y, z, of_all
            ).float()  # a view, also where `result` is 0-d
        return result

    def sqrt(self, a: Tensor) -> Tensor:
        """The correctly rounded square root.

        A binary32's root is at least a relative `2**-51` away from every midpoint of binary32 it is not equal to,
        so a binary64 root that errs by less than two units in the last place rounds to the right neighbour.
        """
        return a.double().sqrt().float()

    def platform_sqrt(self, a: Tensor) -> Tensor:
        """`torch.sqrt`: on CPU the vector library's, which may err by a unit in the last place."""
        return a.contiguous().sqrt()

    def negate(self, a: Tensor) -> Tensor:
        """`-a`."""
        return -a

    def select_less(self, a: Tensor, b: Tensor, if_less: Tensor, otherwise: Tensor) -> Tensor:
        """`if_less` where `a < b`, else `otherwise`."""
        return torch.where(a < b, if_less, otherwise)

    def select_nan(self, a: Tensor, if_nan: Tensor, otherwise: Tensor) -> Tensor:
        """`if_nan` where `a` is NaN."""
        return torch.where(a.isnan(), if_nan, otherwise)


def _round_to_odd(product: Tensor, addend: Tensor, total: Tensor) -> Tensor:
    """The binary64 `total = product + addend` moved to its odd neighbour where the sum was inexact (TwoSum)."""
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(torch.int64)
    inexact_and_even = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)
    nudge = torch.where(away, 1, -1) * inexact_and_even
    return (bits + nudge).view(torch.float64)
