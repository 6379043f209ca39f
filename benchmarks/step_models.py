"""What a step of the op models costs, beside torch's own optimizer and a plain copy.  Run: make bench."""

from __future__ import annotations

from collections.abc import Callable

import click
import torch

from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, platform_description
from guarded_moments.reference.whole_tensor import WholeTensor
from timing import copy_of, interleaved, table

_ADAM = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, decoupled=True)
_STEP = 400.0


def _own_optimizer(numel: int, *, fused: bool) -> Callable[[], object]:
    parameter = torch.nn.Parameter(torch.randn(numel) * 1e-2)
    parameter.grad = torch.randn(numel) * 1e-3
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=fused)
    return optimizer.step


@click.command()
@click.option("--elements", default=1 << 20, show_default=True, help="Elements of the tensor.")
@click.option("--rounds", default=9, show_default=True, help="Rounds; medians are taken over them.")
def main(elements: int, rounds: int) -> None:
    """Time one AdamW step of a tensor on one thread: the op models in torch and NumPy, and torch.optim itself."""
    torch.set_num_threads(1)
    p, g, m, root = (torch.randn(elements) * 1e-3 for _ in range(4))
    v = root * root
    jobs: dict[str, Callable[[], object]] = {"copy": copy_of(elements)}
    for fused in (False, True):
        jobs[f"torch.optim.AdamW, {'fused' if fused else 'single'}"] = _own_optimizer(elements, fused=fused)
    for name, implementation in IMPLEMENTATIONS.items():
        scalars = implementation.scalars(_ADAM, _STEP)
        for domain, numpy in (("torch", False), ("NumPy", True)):
            step = WholeTensor(implementation, _ADAM.options, scalars, numpy=numpy)
            jobs[f"{name}, {domain}"] = lambda step=step: step(p, g, m, v)  # type: ignore[misc]  # bound now
    print(f"{elements:,} elements, one thread, {platform_description()}, medians of {rounds} rounds\n")  # noqa: T201 - its output
    print(table(interleaved(jobs, rounds), elements, "AdamW step", "copy"))  # noqa: T201 - as above


if __name__ == "__main__":
    main()
