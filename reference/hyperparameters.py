"""What a param_group fixes: hyperparameters, checked, and the number of the next update.

Claimed: an accepted group is one of `torch.optim.Adam` or `AdamW`, and every value is in the range that torch accepts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.errors import CheckpointError, UnsupportedError
from guarded_moments.reference.floats import round_to_binary32

_HALF = 0.5
#: Where binary32 ends: torch's unfused kernels refuse such a constant when they run, its fused ones hold infinity.
_BEYOND_BINARY32 = 2.0**128
#: `amsgrad` tells Adam and AdamW from RAdam and NAdam, whose groups and states look alike otherwise.
_REQUIRED = ("lr", "betas", "eps", "weight_decay", "amsgrad")


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
    betas_are_tensors: bool = False  #: the unfused paths then derive all their constants in binary32
    capturable: bool = False
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
        if group.get("differentiable"):
            msg = f"{where}: differentiable=True is not supported: its op sequence is not modelled"
            raise UnsupportedError(msg)
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:  # noqa: PLR2004 - Adam has two
            msg = f"{where}: betas is {betas!r}, expected two numbers"
            raise CheckpointError(msg)
        if group.get("fused") and group.get("foreach"):
            msg = f"{where}: fused=True and foreach=True exclude each other, and torch refuses them together"
            raise CheckpointError(msg)
        lr, lr_is_tensor = _plain(group["lr"], f"{where}: lr")
        beta1, beta1_is_tensor = _plain(betas[0], f"{where}: betas[0]")
        beta2, beta2_is_tensor = _plain(betas[1], f"{where}: betas[1]")
        if beta1_is_tensor != beta2_is_tensor:
            msg = f"{where}: one of betas is a tensor and one is not, which torch refuses"
            raise CheckpointError(msg)
        if group.get("foreach") and not group.get("capturable") and (lr_is_tensor or beta1_is_tensor):
            given = "lr" if lr_is_tensor else "betas"
            msg = f"{where}: {given} in a tensor with foreach=True and capturable=False, which torch refuses"
            raise CheckpointError(msg)
        for name, value in (("lr", lr), ("betas[0]", beta1), ("betas[1]", beta2)):
            _require_number(value, f"{where}: {name}")
        for name in ("eps", "weight_decay"):
            _require_number(group[name], f"{where}: {name}")
        hyperparameters = cls(
            lr=float(lr),  # type: ignore[arg-type]  # numbers, as just checked
            beta1=float(beta1),  # type: ignore[arg-type]
            beta2=float(beta2),  # type: ignore[arg-type]
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=bool(group.get("decoupled_weight_decay", False)),
            amsgrad=bool(group["amsgrad"]),
            maximize=bool(group.get("maximize", False)),
            lr_is_tensor=lr_is_tensor,
            betas_are_tensors=beta1_is_tensor,
            capturable=bool(group.get("capturable", False)),
            fused=bool(group.get("fused", False)),
        )
        hyperparameters.check(where)
        return hyperparameters

    def check(self, where: str) -> None:
        """Refuse values that torch would refuse.

        Raises:
            CheckpointError: a value is out of range; the message says where and which.
        """
        for name, value, high in (
            ("lr", self.lr, _BEYOND_BINARY32),
            ("betas[0]", self.beta1, 1.0),
            ("betas[1]", self.beta2, 1.0),
            ("eps", self.eps, _BEYOND_BINARY32),
            ("weight_decay", self.weight_decay, _BEYOND_BINARY32),
        ):
            if not 0 <= value < high:
                msg = f"{where}: {name} is {value!r}, expected a number in [0, {high:g})"
                raise CheckpointError(msg)

    @property
    def options(self) -> StepOptions:
        """The choices that are made once per tensor."""
        decay = Decay.NONE
        if self.weight_decay != 0:
            decay = Decay.DECOUPLED if self.decoupled else Decay.L2
        return StepOptions(
            interpolate_from_end=round_to_binary32(1 - self.beta1) >= _HALF,
            decay=decay,
            amsgrad=self.amsgrad,
            maximize=self.maximize,
        )


def _plain(value: object, where: str) -> tuple[object, bool]:
    """The value of a one-element float32 tensor, or what was given; and whether it was a tensor."""
    if not isinstance(value, torch.Tensor):
        return value, False
    if value.numel() != 1 or value.dtype is not torch.float32:
        msg = f"{where} is a {value.dtype} tensor of shape {tuple(value.shape)}; only one float32 is supported"
        raise UnsupportedError(msg)
    return value.item(), True


def _require_number(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{where} is {value!r}, expected a number"
        raise CheckpointError(msg)


def next_step(step: object, where: str, *, fused: bool = False) -> float:
    """The number of the next update, from a state's `step` (a count of updates done).

    A float32 `step` tensor sticks at 2**24, as it does in torch.

    Args:
        step: a tensor of one element, of any real dtype, or a number, which `load_state_dict` makes a float32 tensor.
        where: what to call it in an error.
        fused: whether the group is fused or capturable: `load_state_dict` then makes any tensor float32 as well.

    Raises:
        CheckpointError: `step` is not one finite, non-negative count.
    """
    if isinstance(step, torch.Tensor):
        if step.numel() != 1 or step.is_complex():
            msg = f"{where}: step is a tensor of shape {tuple(step.shape)}, expected one number"
            raise CheckpointError(msg)
        done = step.detach().reshape(())
        following = float(((done.float() if fused else done) + 1).item())
    elif isinstance(step, (int, float)) and not isinstance(step, bool):
        following = float(torch.tensor(float(step), dtype=torch.float32) + 1)
    else:
        msg = f"{where}: step is {step!r}, expected a number"
        raise CheckpointError(msg)
    if not math.isfinite(following) or following < 1:
        msg = f"{where}: step is {step!r}, expected a finite count of at least 0"
        raise CheckpointError(msg)
    return following
