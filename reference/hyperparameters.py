"""What a param_group fixes, and the binary32 scalars that a kernel sees at a given step.

Claimed: the scalars equal those torch 2.13 hands to its CPU kernels, bit for bit: Python doubles until each is rounded
once, except that a tensor `lr` makes the unfused paths compute with it in binary32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from guarded_moments.reference.adam import Decay, Scalars, StepOptions
from guarded_moments.reference.errors import CheckpointError, UnsupportedError
from guarded_moments.reference.floats import round_to_binary32

_HALF = 0.5
_REQUIRED = ("lr", "betas", "eps", "weight_decay")


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of one param_group, checked."""

    lr: float  #: in units of the parameter per unit update; binary64, or the exact value of a binary32 tensor
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool  #: AdamW's decay
    amsgrad: bool = False
    maximize: bool = False
    lr_is_tensor: bool = False  #: the unfused paths then derive the step size and the shrink in binary32
    fused: bool = False

    @classmethod
    def from_param_group(cls, group: Mapping[str, Any], where: str) -> Hyperparameters:
        """Read a `param_groups` entry of `torch.optim.Adam` or `AdamW`.

        Args:
            group: the entry.
            where: what to call it in an error, e.g. `param_groups[0]`.

        Raises:
            CheckpointError: a value is missing, of the wrong kind, or out of range.
            UnsupportedError: an option whose op sequence is not modelled.
        """
        for key in _REQUIRED:
            if key not in group:
                msg = f"{where} has no {key!r}: this is not a param_group of Adam or AdamW (it has {sorted(group)})"
                raise CheckpointError(msg)
        for option in ("capturable", "differentiable"):
            if group.get(option):
                msg = f"{where}: {option}=True is not supported: its op sequence is not modelled yet"
                raise UnsupportedError(msg)
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:  # noqa: PLR2004 - Adam has two
            msg = f"{where}: betas is {betas!r}, expected two numbers"
            raise CheckpointError(msg)
        if any(isinstance(beta, torch.Tensor) for beta in betas):
            msg = f"{where}: betas given as tensors are not supported: torch derives other constants from them"
            raise UnsupportedError(msg)
        lr = group["lr"]
        lr_is_tensor = isinstance(lr, torch.Tensor)
        if isinstance(lr, torch.Tensor):
            if lr.numel() != 1 or lr.dtype is not torch.float32:
                msg = f"{where}: lr is a {lr.dtype} tensor of shape {tuple(lr.shape)}; only one float32 is supported"
                raise UnsupportedError(msg)
            lr = lr.item()
        return cls(
            lr=_number(lr, f"{where}: lr", 0.0, math.inf),
            beta1=_number(betas[0], f"{where}: betas[0]", 0.0, 1.0),
            beta2=_number(betas[1], f"{where}: betas[1]", 0.0, 1.0),
            eps=_number(group["eps"], f"{where}: eps", 0.0, math.inf),
            weight_decay=_number(group["weight_decay"], f"{where}: weight_decay", 0.0, math.inf),
            decoupled=bool(group.get("decoupled_weight_decay", False)),
            amsgrad=bool(group.get("amsgrad", False)),
            maximize=bool(group.get("maximize", False)),
            lr_is_tensor=lr_is_tensor,
            fused=bool(group.get("fused", False)),
        )

    @property
    def options(self) -> StepOptions:
        """The choices that are made once per tensor."""
        decay = Decay.NONE
        if self.weight_decay != 0:
            decay = Decay.DECOUPLED if self.decoupled else Decay.L2
        return StepOptions(
            interpolate_from_end=abs(round_to_binary32(1 - self.beta1)) >= _HALF,
            decay=decay,
            amsgrad=self.amsgrad,
            maximize=self.maximize,
        )

    def scalars(self, step: float) -> Scalars[float]:
        """The constants of update number `step`, each a binary32 value held in a Python float.

        Args:
            step: the number of the update, 1 for the first; a finite float of at least 1.
        """
        w = round_to_binary32(1 - self.beta1)
        bias_correction1 = 1 - self.beta1**step
        bias_correction2 = 1 - self.beta2**step
        if self.lr_is_tensor and not self.fused:
            lr = torch.tensor(self.lr, dtype=torch.float32)
            step_size = float(lr / bias_correction1)
            shrink = float(1 - lr * self.weight_decay)
        else:
            step_size = round_to_binary32(self.lr / bias_correction1)
            shrink = round_to_binary32(1 - self.lr * self.weight_decay)
        return Scalars(
            w=w,
            c=round_to_binary32(1 - self.beta2),
            beta2=round_to_binary32(self.beta2),
            root=round_to_binary32(bias_correction2**0.5),
            eps=round_to_binary32(self.eps),
            step=-step_size,
            w_minus_one=round_to_binary32(w - 1),
            one_minus_w=round_to_binary32(1 - w),
            shrink=shrink,
            weight_decay=round_to_binary32(self.weight_decay),
        )


def _number(value: Any, where: str, low: float, high: float) -> float:  # noqa: ANN401 - anything a file may hold
    """`value` as a float in [low, high), or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{where} is {value!r}, expected a number"
        raise CheckpointError(msg)
    number = float(value)
    if not low <= number < high:
        msg = f"{where} is {value!r}, expected a number in [{low:g}, {high:g})"
        raise CheckpointError(msg)
    return number


def next_step(step: object, where: str) -> float:
    """The number of the next update, from a state's `step` (a count of updates done).

    A float32 `step` tensor sticks at 2**24, as it does in torch.

    Raises:
        CheckpointError: `step` is not one finite, non-negative count.
    """
    if isinstance(step, torch.Tensor):
        if step.numel() != 1 or step.is_complex():
            msg = f"{where}: step is a tensor of shape {tuple(step.shape)}, expected one number"
            raise CheckpointError(msg)
        following = float((step.detach().reshape(()) + 1).item())
    elif isinstance(step, (int, float)) and not isinstance(step, bool):
        following = float(torch.tensor(float(step), dtype=torch.float32) + 1)
    else:
        msg = f"{where}: step is {step!r}, expected a number"
        raise CheckpointError(msg)
    if not math.isfinite(following) or following < 1:
        msg = f"{where}: step is {step!r}, expected a finite count of at least 0"
        raise CheckpointError(msg)
    return following
