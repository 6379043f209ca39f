"""bitsandbytes' AdamW on CPU: its moments in float32, and in 8 bits by blocks of 256."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import Adapter, After, imported
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters

BLOCK = 256


@final
class BitsandbytesAdam(Adapter):
    """`bitsandbytes.optim.AdamW` with 32 or 8 bits a moment."""

    packages = ("bitsandbytes",)

    def __init__(self, bits: int) -> None:
        """Keep each moment in as many bits."""
        self._bits = bits
        self.name, self.title = f"bitsandbytes-adamw-{bits}bit", f"bitsandbytes AdamW, {bits} bit"
        moments = "m' = m*b1 + g*(1-b1); v' = v*b2 + (1-b2)*g*g; "
        if bits == 8:  # noqa: PLR2004 - the format's name
            self.block = BLOCK
            self.reading = moments + "p + (-lr/bc1)*m' / (sqrt(v')/sqrt(bc2) + eps), with m' and v' before encoding"
        else:
            self.reading = moments + "p + (-lr*sqrt(bc2)/bc1) * (m' / (sqrt(v') + eps*sqrt(bc2)))"

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter."""
        parameter = torch.nn.Parameter(torch.zeros_like(state.g))
        parameter.grad = state.g.clone()
        optimizer, held = self._made(parameter, hyperparameters)
        if state.number > 1 or not self.quantised:  # before the first update the state is what bitsandbytes itself made
            self._lay_in(held, state.m, state.v)
        held["step"] = state.number - 1
        start = self._read(held)
        optimizer.step()
        return After(*start, parameter.detach(), *self._read(held))

    def round_trip(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The moments encoded and decoded once."""
        _, held = self._made(torch.nn.Parameter(torch.zeros_like(m)), None)
        self._lay_in(held, m, v)
        return self._read(held)

    def _made(self, parameter: torch.nn.Parameter, h: Hyperparameters | None) -> tuple[Any, dict[str, Any]]:
        """The optimizer, and the state that it made for its only parameter."""
        options: dict[str, Any] = {}
        if h is not None:
            options = {"lr": h.lr, "betas": (h.beta1, h.beta2), "eps": h.eps, "weight_decay": h.weight_decay}
        optimizer = imported("bitsandbytes").optim.AdamW([parameter], optim_bits=self._bits, **options)
        optimizer.init_state(optimizer.param_groups[0], parameter, 0, 0)
        held: dict[str, Any] = optimizer.state[parameter]
        return optimizer, held

    def _lay_in(self, held: dict[str, Any], *moments: Tensor) -> None:
        for i, moment in enumerate(moments, start=1):
            if self.quantised:
                functional = imported("bitsandbytes.functional")
                codes, form = functional.quantize_blockwise(moment, code=held[f"qmap{i}"], blocksize=BLOCK)
                held[f"state{i}"].copy_(codes)
                held[f"absmax{i}"].copy_(form.absmax)
            else:
                held[f"state{i}"].copy_(moment)

    def _read(self, held: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return self._moment(held, 1), self._moment(held, 2)

    def _moment(self, held: dict[str, Any], i: int) -> Tensor:
        if not self.quantised:
            moment: Tensor = held[f"state{i}"].clone()
            return moment
        functional = imported("bitsandbytes.functional")
        decoded: Tensor = functional.dequantize_blockwise(
            held[f"state{i}"], absmax=held[f"absmax{i}"], code=held[f"qmap{i}"], blocksize=BLOCK
        )
        return decoded
