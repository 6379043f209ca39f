"""A training small enough for tests: regression with AdamW, from a checkpoint that it wrote itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WEIGHTS = "weights.pt"
LR = 1e-3


class SmallTraining:
    """Draws its inputs from a generator; the target is a fixed function of them."""

    def __init__(self, order: int, model: nn.Module | None = None) -> None:
        self.model = made() if model is None else model
        named = list(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW([{"params": named}], lr=LR)
        self._draws = torch.Generator().manual_seed(order)

    def gradients(self, update: int) -> float:  # noqa: ARG002 - drawn in order
        """Gradients of the next inputs."""
        inputs = torch.randn(16, 6, generator=self._draws)
        loss: Tensor = (self.model(inputs) - inputs.sin().sum(dim=1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        return loss.item()


def made() -> nn.Module:
    """The same weights every time."""
    generator = torch.Generator().manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


def trained(folder: Path, steps: int = 30) -> Path:
    """Train, save weights and the optimizer's state, and return the place of the state."""
    training = SmallTraining(99)
    for step in range(steps):
        training.gradients(step)
        training.optimizer.step()
    torch.save(training.model.state_dict(), folder / WEIGHTS)
    torch.save(training.optimizer.state_dict(), folder / "optimizer.pt")
    return folder / "optimizer.pt"


def resume(checkpoint: Path, order: int) -> SmallTraining:
    """What `--training` names."""
    model = made()
    model.load_state_dict(torch.load(checkpoint.parent / WEIGHTS, weights_only=True))
    return SmallTraining(order, model)


def without_gradients(checkpoint: Path, order: int) -> object:
    """No training."""
    return object()


def of_other_parameters(checkpoint: Path, order: int) -> Any:  # noqa: ANN401 - as `resume`
    """A training whose parameters are not the checkpoint's."""
    return SmallTraining(order, nn.Linear(6, 1))


def failing(checkpoint: Path, order: int) -> object:
    """No training either."""
    raise FileNotFoundError(f"no data for {order} beside {checkpoint.name}")
