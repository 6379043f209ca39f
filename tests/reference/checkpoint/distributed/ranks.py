"""Real processes that train, save, compress and resume with FSDP2 and DistributedDataParallel over gloo.

Run as a program: `python ranks.py ROLE FOLDER RANKS LAYOUT...`; it starts that many processes and waits for them.
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import start_processes

from guarded_moments.reference.checkpoint.distributed import Folder, compress_shards, finish_compressed

#: Rows that no number of ranks divides.
WIDTHS = (16, 33, 5)
LAYOUTS = ("tree", "flattened", "raw", "replicated")
TOLERANCE, BOUND = 0.01, 1.0
IMPLEMENTATION = "torch-2.13-cpu-avx2/single"


def model_and_optimizer(layout: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same on every rank, sharded or replicated."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(*WIDTHS[:2]), nn.GELU(), nn.Linear(*WIDTHS[1:]))
    if layout == "replicated":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def states(layout: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What is given to torch.distributed.checkpoint."""
    if layout == "raw":
        return {"optimizer": optimizer.state_dict()}
    if layout == "flattened":
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        return {"optimizer": get_optimizer_state_dict(model, optimizer, options=options)}
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optim": of_optimizer}


def save(layout: str, folder: Path, rank: int, ranks: int) -> None:
    """Train a little and save; then compress, each rank its own files."""
    model, optimizer = model_and_optimizer(layout)
    for step in range(3):
        torch.manual_seed(100 * rank + step)
        optimizer.zero_grad()
        model(torch.randn(8, WIDTHS[0])).square().mean().backward()
        optimizer.step()
    save_distributed(states(layout, model, optimizer), checkpoint_id=folder / layout)
    native, output = Folder(folder / layout), folder / f"{layout}.gmc"
    choices = {"tolerance": TOLERANCE, "grad_bound": BOUND, "implementation": IMPLEMENTATION}
    for _ in compress_shards(native, output, rank=rank, ranks=ranks, **choices):
        pass
    dist.barrier()
    if rank == 0:
        finish_compressed(native, output)
    dist.barrier()


def resume(layout: str, folder: Path, rank: int, ranks: int) -> None:
    """Load the native and the recovered states, and let the real optimizer make one step with the same gradients."""
    updates = [updated(layout, folder / name) for name in (layout, f"{layout}.recovered")]
    if rank == 0:
        torch.save(updates, folder / f"{layout}.updates.pt")


def updated(layout: str, checkpoint: Path) -> list[Tensor]:
    """What one step adds to each parameter after a checkpoint was loaded."""
    model, optimizer = model_and_optimizer(layout)
    if layout == "raw":  # the integer keys of a state that has stepped are needed to load into
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    into = states(layout, model, optimizer)
    load(into, checkpoint_id=checkpoint)
    if layout == "raw":
        optimizer.load_state_dict(into["optimizer"])
    elif layout == "flattened":
        set_optimizer_state_dict(
            model, optimizer, into["optimizer"], options=StateDictOptions(flatten_optimizer_state_dict=True)
        )
    else:
        set_state_dict(model, optimizer, model_state_dict=into["model"], optim_state_dict=into["optim"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            gradients = torch.linspace(-1, 1, local.numel()).pow(7).view_as(local)
            parameter.grad = torch.zeros_like(parameter)
            (parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad).copy_(gradients)
    optimizer.step()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [parameter.detach().clone() for parameter in whole]


def _run(rank: int, role: str, folder: str, ranks: int, layouts: list[str], meeting: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for layout in layouts:
        {"save": save, "resume": resume}[role](layout, Path(folder), rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as place:
        role, folder, ranks, *layouts = sys.argv[1:]
        arguments = (role, folder, int(ranks), layouts, f"{place}/meeting")
        # By fork: the import of torch is most of what these small jobs cost.
        start_processes(_run, arguments, nprocs=int(ranks), start_method="fork")
