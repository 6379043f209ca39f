"""Whether this machine's torch computes the op model of the claim, on the very states of the checkpoint.

For every guarded tensor one step of `torch.optim.AdamW` is made from its native and from its recovered moments, with
drawn gradients, and parameter and moments are compared bit for bit with the op model's.

Claimed: the counts.  Where the file names an op model that this machine does not run, nothing is compared.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.torch_adam import make
from guarded_moments.reference.checkpoint.encoding import scalars_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, in_memory_order
from guarded_moments.reference.checkpoint.state import GuardedTensor
from guarded_moments.reference.errors import GuardedMomentsError
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_for, implementation_named
from guarded_moments.reference.whole_tensor import WholeTensor

SEED = 20150715


class AgainstTorch:
    """Counts of states compared and of those that differ."""

    def __init__(self) -> None:
        """Begin with none."""
        self.compared = self.differing = 0  #: states: two a coordinate
        self.left_out = 0  #: coordinates whose tensors were not compared

    def add(self, tensor: GuardedTensor, parameter: Parameter) -> None:
        """Compare one step of a tensor from both its states."""
        group = parameter.hyperparameters
        own = _path(tensor.implementation)
        if own is None or group.amsgrad or group.maximize or group.lr_is_tensor or group.betas_are_tensors:
            self.left_out += tensor.numel
            return
        plain = replace(group, lr=tensor.lr, weight_decay=0.0)
        parameter = replace(parameter, hyperparameters=plain)
        implementation = implementation_named(tensor.implementation)
        step = WholeTensor(implementation, plain.options, scalars_of(parameter, implementation, tensor.lr))
        generator = torch.Generator().manual_seed(SEED + zlib.crc32(repr((tensor.place, tensor.key)).encode()))
        native = (in_memory_order(parameter.m), in_memory_order(parameter.v))
        g = native[1].abs().nan_to_num().sqrt() * torch.randn(tensor.numel, generator=generator)
        for m, v in (native, tensor.decode()):
            ours = step(torch.zeros_like(g), g, m, v)
            theirs = _torch_step(plain, own, parameter.next_step, g, m, v)
            different = torch.zeros(tensor.numel, dtype=torch.bool)
            for one, other in zip((ours.p, ours.m, ours.v), theirs, strict=True):
                different |= (one.view(torch.int32) != other.view(torch.int32)) & ~(one.isnan() & other.isnan())
            self.compared += tensor.numel
            self.differing += int(different.sum())


def _path(implementation: str) -> dict[str, bool] | None:
    """The keyword arguments by which this machine's torch follows an implementation; None if none does."""
    paths: tuple[dict[str, bool], ...] = ({"foreach": False, "fused": False}, {"foreach": True}, {"fused": True})
    for path in paths:
        try:
            if implementation_for(path).name == implementation:
                return path
        except GuardedMomentsError:
            return None
    return None


def _torch_step(
    hyperparameters: Hyperparameters, path: dict[str, bool], number: float, g: Tensor, m: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    parameter = torch.nn.Parameter(torch.zeros_like(g))
    optimizer = make(parameter, hyperparameters, **path)
    parameter.grad, m, v = g.clone(), m.clone(), v.clone()
    optimizer.state[parameter] = {"step": torch.tensor(number - 1), "exp_avg": m, "exp_avg_sq": v}
    optimizer.step()
    return parameter.detach(), m, v
