"""Binary64 on torch tensors: the domain in which the guard and the search are evaluated.

Claimed: each method is one rounding; on a CPU `sqrt` too, where NumPy takes it, because the vector library behind
`torch.sqrt` is off by one unit in the last place now and then, and a guard that asks it decides otherwise on another
machine.  The guard adds its own rounding error as slack; `RoundingCount` counts it, and allows for such a root.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor


@final
class TorchBinary64:
    """Rounded binary64 operations on float64 tensors of any shape; operands broadcast."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        """Operate on tensors of `device`; constants are made there."""
        self._device = torch.device(device)

    def constant(self, value: float) -> Tensor:
        """A 0-d float64 tensor."""
        return torch.tensor(value, dtype=torch.float64, device=self._device)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """`a + b`."""
        return a + b

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        """`a - b`."""
        return a - b

    def negate(self, a: Tensor) -> Tensor:
        """`-a`."""
        return -a

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """`a * b`."""
        return a * b

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """`a / b`."""
        return a / b

    def sqrt(self, a: Tensor) -> Tensor:
        """The square root."""
        if a.device.type != "cpu" or torch.compiler.is_compiling():  # inductor emits the processor's instruction
            return a.sqrt()
        root = torch.empty_like(a)
        with np.errstate(invalid="ignore"):
            np.sqrt(a.numpy(), out=root.numpy())
        return root

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """`|a - b|`."""
        return (a - b).abs()

    def absolute(self, a: Tensor) -> Tensor:
        """`|a|`."""
        return a.abs()

    def minimum(self, a: Tensor, b: Tensor) -> Tensor:
        """The smaller; NaN if either is."""
        return torch.minimum(a, b)

    def nearest(self, a: Tensor) -> Tensor:
        """The nearest binary32 value, held in binary64."""
        return a.float().double()

    def select_less(self, a: Tensor, b: Tensor, if_less: Tensor, otherwise: Tensor) -> Tensor:
        """`if_less` where `a < b`, else `otherwise`."""
        return torch.where(a < b, if_less, otherwise)

    def maximum(self, a: Tensor, b: Tensor) -> Tensor:
        """The larger; NaN if either is."""
        return torch.maximum(a, b)
