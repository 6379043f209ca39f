"""The first step after recovery, in one pass, beside recovery and then torch's own step.  Run: make bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import torch

from guarded_moments.reference import Claim, GradientBound, Tolerance
from guarded_moments.reference.checkpoint.encoding import constants_of, scalars_of
from guarded_moments.reference.codecs import CODECS
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.implementations import IMPLEMENTATIONS, implementation_for, platform_description
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.first_step import FirstStep
from timing import copy_of, interleaved, table
from trained_state import checkpoint_option, largest_parameter, repeated_moments


@click.command()
@checkpoint_option
@click.option("--coordinates", default=1 << 23, show_default=True, help="Its largest tensor is repeated to so many.")
@click.option("--rounds", default=7, show_default=True, help="Rounds; medians are taken over them.")
def main(checkpoint: Path, coordinates: int, rounds: int) -> None:
    """Time the first step of one tensor on one thread, from its codes, for each codec that has compiled loops."""
    torch.set_num_threads(1)
    trained = largest_parameter(checkpoint)
    own = implementation_for(trained.param_group)
    lr, h = trained.hyperparameters.lr, trained.hyperparameters
    constants = constants_of(trained, Claim(Tolerance(0.01), GradientBound(1.0), own.name), own, lr)
    m, v = repeated_moments(trained, coordinates)
    p, g = 1e-2 * torch.randn(len(m)), 1e-3 * torch.randn(len(m))
    into = (torch.zeros_like(m), torch.zeros_like(v))
    jobs: dict[str, Callable[[], object]] = {"copy": copy_of(len(m))}
    for path in ("single", "fused"):
        implementation = IMPLEMENTATIONS[f"{own.name.rpartition('/')[0]}/{path}"]
        parameter = torch.nn.Parameter(p.clone())
        parameter.grad = g
        optimizer = torch.optim.AdamW(
            [parameter], lr, (h.beta1, h.beta2), h.eps, h.weight_decay, fused=path == "fused", foreach=False
        )
        optimizer.state[parameter] = {
            "step": torch.tensor(trained.next_step - 1),
            "exp_avg": m.clone(),
            "exp_avg_sq": v.clone(),
        }
        jobs[f"torch.optim.AdamW, {path}"] = optimizer.step
        for kind in (CODECS[name] for name in ("log8", "lin8", "bf16")):
            kernel = Kernel.of(kind.fit(m, v, CompiledClosedForm(constants)))
            if kernel is None:  # these have loops
                raise AssertionError(kind)
            found = kernel.guarded(constants, m, v)
            jobs[f"{kind.name}: recover"] = lambda kernel=kernel, found=found: kernel.recovered(*found, into=into)  # type: ignore[misc]  # bound now
            step = FirstStep(kernel, implementation, h.options, scalars_of(trained, implementation, lr))
            jobs[f"{kind.name}: recover and step in one, {path}"] = lambda step=step, found=found: step(  # type: ignore[misc]  # bound now
                *found, p, g, into=into
            )
    print(f"{len(m):,} coordinates, one thread, {platform_description()}, medians of {rounds} rounds\n")  # noqa: T201 - its output
    print(table(interleaved(jobs, rounds), len(m), "first step", "copy"))  # noqa: T201 - as above


if __name__ == "__main__":
    main()
