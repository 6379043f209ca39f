"""Implementations made up for the tests: torch's own step with something changed."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck import ADAPTERS, Adapter, After, State
from guarded_moments.reference.hyperparameters import Hyperparameters

COUNT = 4096 + 13
SMALLEST_NORMAL = 2.0**-126

Change = Callable[[After], After]
Codec = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@final
class StandIn(Adapter):
    """torch's single path, what it leaves changed, from moments that went through a codec."""

    name, title, packages, reading = "stand-in", "a stand-in", (), "made up"

    def __init__(self, change: Change = lambda after: after, codec: Codec | None = None) -> None:
        """Change what a step leaves; with a codec, pretend that the moments are stored by it in blocks of 256."""
        self._change, self._codec = change, codec
        self.block = 1 if codec is None else 256

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter."""
        m, v = self.round_trip(state.m, state.v)
        after = ADAPTERS["torch-single"].step(State(state.number, state.g, m, v), hyperparameters)
        encoded = After(m, v, after.p, *self.round_trip(after.m, after.v))
        return self._change(encoded)

    def round_trip(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The codec."""
        return (m, v) if self._codec is None else self._codec(m, v)


def flushed(values: Tensor) -> Tensor:
    """Subnormal values become zeros."""
    return torch.where(values.abs() < SMALLEST_NORMAL, torch.zeros_like(values), values)


def coarse(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Half the bits of `m` gone, and small `v` gone altogether."""
    half = (m.view(torch.int32) & -(1 << 16)).view(torch.float32)
    return half, torch.where(v < v.max() / 1000, torch.zeros_like(v), v)
