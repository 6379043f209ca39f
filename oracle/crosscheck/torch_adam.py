"""torch's own AdamW, single, foreach and fused: controls, which must follow their op models bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch

from guarded_moments.oracle.crosscheck.adapter import Adapter, After
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters


@final
class TorchAdam(Adapter):
    """`torch.optim.AdamW` by one of its paths."""

    packages = ("torch",)

    def __init__(self, path: str, options: Mapping[str, bool]) -> None:
        """Run the path that these keyword arguments select."""
        self.name = f"torch-{path}"
        self.title = f"torch AdamW, {path}"
        self.reading = "the op model of the same name"
        self._options = dict(options)

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter."""
        parameter = torch.nn.Parameter(torch.zeros_like(state.g))
        optimizer = make(parameter, hyperparameters, **self._options)
        parameter.grad = state.g.clone()
        m, v = state.m.clone(), state.v.clone()
        optimizer.state[parameter] = {
            "step": torch.tensor(float(state.number - 1)),
            "exp_avg": m,
            "exp_avg_sq": v,
        }
        optimizer.step()
        return After(state.m, state.v, parameter.detach(), m, v)


def make(parameter: torch.nn.Parameter, hyperparameters: Hyperparameters, **options: bool) -> torch.optim.AdamW:
    """The optimizer of one parameter, by the path that the options select."""
    return torch.optim.AdamW(
        [parameter],
        lr=hyperparameters.lr,
        betas=(hyperparameters.beta1, hyperparameters.beta2),
        eps=hyperparameters.eps,
        weight_decay=hyperparameters.weight_decay,
        **options,
    )
