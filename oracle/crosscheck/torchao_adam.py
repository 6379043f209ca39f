"""torchao's AdamW, its moments in 8 bits, in fp8 and in 4 bits; and in float32, where a tensor has no whole blocks.

The step is compiled by `torch.compile`, as torchao does by itself.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import Adapter, After, imported
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters

SMALLEST = 4096  #: elements from which torchao quantises


@final
class TorchaoAdam(Adapter):
    """One of torchao's AdamW optimizers."""

    packages = ("torchao",)
    reading = (
        "m' = lerp(m, g, 1-b1); v' = lerp(v, g^2, 1-b2); p - lr*(m'/bc1) / (sqrt(v')/sqrt(bc2) + eps), with m' and v' "
        "before they are encoded; bias corrections in binary32; compiled"
    )

    def __init__(self, optimizer: str, block: int, title: str, name: str) -> None:
        """Run the class of that name.

        Args:
            optimizer: class in `torchao.optim`.
            block: elements that share a scale; 1 to have the state in float32, for which no tensor may fill blocks.
            title: in the table.
            name: on the command line.
        """
        self._optimizer, self.block, self.title, self.name = optimizer, block, title, name

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter.

        Raises:
            ValueError: torchao would choose another format for a tensor of this size.
        """
        parameter = torch.nn.Parameter(torch.zeros_like(state.g))
        parameter.grad = state.g.clone()
        optimizer = self._made(parameter, hyperparameters)
        moments = self._buffers(optimizer, parameter)
        if state.number > 1 or not self.quantised:  # before the first update the state is what torchao itself made
            for buffer, moment in zip(moments, (state.m, state.v), strict=True):
                buffer.copy_(moment)
        start = [_decoded(buffer) for buffer in moments]
        optimizer.state[parameter] = {
            "step": torch.tensor(float(state.number - 1)),
            "exp_avg": moments[0],
            "exp_avg_sq": moments[1],
        }
        optimizer.step()
        return After(start[0], start[1], parameter.detach(), *(_decoded(buffer) for buffer in moments))

    def round_trip(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The moments encoded and decoded once."""
        parameter = torch.nn.Parameter(torch.zeros_like(m))
        buffers = self._buffers(self._made(parameter, None), parameter)
        for buffer, moment in zip(buffers, (m, v), strict=True):
            buffer.copy_(moment)
        return _decoded(buffers[0]), _decoded(buffers[1])

    def _made(self, parameter: torch.nn.Parameter, h: Hyperparameters | None) -> Any:  # noqa: ANN401 - torchao's class
        made = getattr(imported("torchao.optim"), self._optimizer)
        if h is None:
            return made([parameter])
        return made([parameter], lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay)

    def _buffers(self, optimizer: Any, parameter: Tensor) -> list[Tensor]:  # noqa: ANN401 - as above
        buffers = [optimizer._new_buffer(parameter, signed) for signed in (True, False)]  # noqa: SLF001 - its only name
        if any((type(buffer) is not Tensor) != self.quantised for buffer in buffers):
            kind = "quantised" if self.quantised else "float32"
            msg = f"torchao does not keep a {kind} state for {parameter.numel()} elements"
            raise ValueError(msg)
        return buffers


def _decoded(buffer: Any) -> Tensor:  # noqa: ANN401 - a tensor, or torchao's subclass of it
    decoded: Tensor = buffer.clone() if type(buffer) is Tensor else buffer.dequantize()
    return decoded
