"""Save and resume with a guarantee, in Lightning: one line in `configure_optimizers`.

    pip install lightning
    python examples/resume_lightning.py --folder run

trains three steps and saves, then begins again as another process would, loads, and trains two more.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from guarded_moments.reference.clipping import bound_of_clipped_norm
from guarded_moments.reference.training import guard_checkpoints

CLIP = 1.0


class Model(lightning.LightningModule):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The loss of a batch."""
        (inputs,) = batch
        loss: Tensor = (self.layers(inputs) - inputs[:, :4]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW; its part of every checkpoint will be compressed."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        self.guarded = guard_checkpoints(optimizer, tolerance=0.01, grad_bound=bound_of_clipped_norm(CLIP))
        return optimizer


def trainer(folder: Path, steps: int) -> lightning.Trainer:
    """A quiet one on the CPU, which clips."""
    return lightning.Trainer(
        default_root_dir=folder,
        max_steps=steps,
        gradient_clip_val=CLIP,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main() -> None:
    """Train, save, resume."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to save")
    folder: Path = parser.parse_args().folder
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=8)

    first = trainer(folder, 3)
    first.fit(Model(), data)
    first.save_checkpoint(folder / "model.ckpt")

    resumed = Model()
    second = trainer(folder, 5)
    second.fit(resumed, data, ckpt_path=folder / "model.ckpt", weights_only=True)
    if resumed.guarded.first_update is not None:
        print(resumed.guarded.first_update.sentence())
    print(f"step {second.global_step}")


if __name__ == "__main__":
    main()
