"""Save and resume with a guarantee, in plain PyTorch: two lines beside those of any training loop.

    python examples/resume_plain.py --folder run

trains three steps and saves, then begins again as another process would, loads, and trains two more.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from guarded_moments.reference.clipping import bound_of_clipped_norm
from guarded_moments.reference.training import load_guarded, save_guarded

CLIP = 1.0


def started() -> tuple[nn.Module, torch.optim.AdamW]:
    """What every run begins with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """A training loop that clips."""
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        inputs = torch.randn(8, 16)
        (model(inputs) - inputs[:, :4]).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()


def main() -> None:
    """Train, save, resume."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to save")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    model, optimizer = started()
    train(model, optimizer, range(3))
    torch.save(model.state_dict(), folder / "model.pt")
    save_guarded(optimizer, folder / "optimizer.gmc", tolerance=0.01, grad_bound=bound_of_clipped_norm(CLIP))

    resumed, restored = started()
    resumed.load_state_dict(torch.load(folder / "model.pt"))
    first_update = load_guarded(restored, folder / "optimizer.gmc")
    before = copy.deepcopy(resumed.state_dict())
    train(resumed, restored, range(3, 4))
    print(first_update.sentence())

    train(model, optimizer, range(3, 4))  # what would have been
    lr = restored.param_groups[0]["lr"]
    natively = model.state_dict()
    apart = max(float((value - natively[name]).abs().max()) for name, value in resumed.state_dict().items()) / lr
    moved = max(float((value - before[name]).abs().max()) for name, value in resumed.state_dict().items()) / lr
    print(f"largest update {moved:.3f} lr, at most {apart:.4f} lr from that of the run that went on")
    train(resumed, restored, range(4, 5))


if __name__ == "__main__":
    main()
