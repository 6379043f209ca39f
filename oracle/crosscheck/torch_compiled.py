"""`torch.compile` of torch's AdamW step: code that inductor writes and the machine's C++ compiler builds.

One optimizer is kept for each size, so that the step is compiled once and then only given other values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch

from guarded_moments.oracle.compiled_step import compiled_step
from guarded_moments.oracle.crosscheck.adapter import Adapter, After
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.oracle.crosscheck.torch_adam import make
from guarded_moments.reference.hyperparameters import Hyperparameters


@final
class TorchCompiled(Adapter):
    """`torch.compile(torch.optim.AdamW(...).step)`."""

    packages = ("torch",)

    def __init__(self, *, foreach: bool = False) -> None:
        """Compile nothing yet."""
        self.name = "torch-compiled-foreach" if foreach else "torch-compiled"
        self.title = "torch AdamW, foreach, torch.compile" if foreach else "torch AdamW, torch.compile"
        contracted = "" if foreach else ", except in `addcmul`"
        self.reading = f"the op model of the same name; compiled without contraction{contracted}"
        self._foreach = foreach
        self._kept: dict[tuple[int, Hyperparameters], tuple[torch.nn.Parameter, dict[str, Any], Callable[[], Any]]] = {}

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter; the first of its size takes as long as compiling does."""
        key = len(state.g), hyperparameters
        if key not in self._kept:
            parameter = torch.nn.Parameter(torch.zeros_like(state.g))
            optimizer = make(parameter, hyperparameters, foreach=self._foreach)
            held = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(state.m),
                "exp_avg_sq": torch.zeros_like(state.v),
            }
            optimizer.state[parameter] = held
            self._kept[key] = parameter, held, compiled_step(optimizer.step)
        parameter, held, run = self._kept[key]
        with torch.no_grad():
            parameter.zero_()
        parameter.grad = state.g.clone()
        held["step"].fill_(state.number - 1)
        held["exp_avg"].copy_(state.m)
        held["exp_avg_sq"].copy_(state.v)
        run()
        return After(state.m, state.v, parameter.detach().clone(), held["exp_avg"].clone(), held["exp_avg_sq"].clone())
