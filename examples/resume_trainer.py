"""Save and resume with a guarantee, in Hugging Face's Trainer: one line in `create_optimizer`.

    pip install 'transformers[torch]'
    python examples/resume_trainer.py --folder run

trains three of five steps, then begins again as another process would, from the checkpoint, and trains the last two.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from guarded_moments.reference.clipping import bound_of_clipped_norm
from guarded_moments.reference.training import guard_checkpoints


class Model(nn.Module):
    """A small regression, in the form that Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss of a batch."""
        return {"loss": (self.layers(inputs) - labels).square().mean()}


class GuardedTrainer(transformers.Trainer):
    """A Trainer whose checkpoints hold a compressed optimizer's state."""

    def create_optimizer(self, *arguments: Any, **named: Any) -> torch.optim.Optimizer:  # noqa: ANN401 - of Trainer
        """The one that it would make; its part of every checkpoint will be compressed."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(*arguments, **named)
        bound = bound_of_clipped_norm(self.args.max_grad_norm)
        self.guarded = guard_checkpoints(optimizer, tolerance=0.01, grad_bound=bound)
        return optimizer


def trainer(folder: Path) -> GuardedTrainer:
    """A quiet one on the CPU, which clips, as Trainer does unless it is told not to."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 16)
    data = [{"inputs": row, "labels": row[:4]} for row in inputs]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=5,
        save_steps=3,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
    )
    return GuardedTrainer(model=Model(), args=arguments, train_dataset=data)


def main() -> None:
    """Train, save, resume."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to save")
    folder: Path = parser.parse_args().folder

    trainer(folder).train()

    resumed = trainer(folder)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    if resumed.guarded.first_update is not None:
        print(resumed.guarded.first_update.sentence())
    print(f"step {resumed.state.global_step}")


if __name__ == "__main__":
    main()
