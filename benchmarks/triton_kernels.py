"""The Triton kernels on a GPU, beside a plain copy of the same bytes there.  Run: make bench; needs the extra `triton`.

Where there is no GPU, or no Triton, it says "not measured" and no figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from importlib import util

import click
import torch

from guarded_moments.reference import Claim, GradientBound, Hyperparameters, Tolerance, guard_constants
from guarded_moments.reference.codecs import CODECS, Codes
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.implementations import implementation_named

_PATH = "torch-2.14-cuda/foreach"
_BYTES = 8  #: of a coordinate's two moments
_WARM = 3  #: calls that are not timed: the first compiles and tunes


def _reason() -> str | None:
    """Why nothing can be measured, if nothing can."""
    if util.find_spec("triton") is None:
        return "Triton is not installed: the extra `triton`"
    return None if torch.cuda.is_available() else "there is no GPU"


def _milliseconds(job: Callable[[], object], rounds: int) -> float:
    for _ in range(_WARM):
        job()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        job()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))


@click.command()
@click.option("--coordinates", default=1 << 26, show_default=True, help="Coordinates of the tensor.")
@click.option("--rounds", default=20, show_default=True, help="Rounds; medians are taken over them.")
def main(coordinates: int, rounds: int) -> None:
    """Time encode with guard, decode, and the first step, for log8, lin8 and bf16; GB/s of the copy in the same run."""
    reason = _reason()
    if reason is not None:
        print(f"not measured: {reason}")  # noqa: T201 - its output
        return
    from guarded_moments.reference.kernels.triton_codecs import TritonKernel  # noqa: PLC0415 - an extra

    h = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, decoupled=True)
    known = implementation_named(_PATH)
    scalars = known.scalars(h, 400.0)
    constants = guard_constants(Claim(Tolerance(0.01), GradientBound(1.0), _PATH), known, h.options, scalars, h.lr)
    v = torch.exp2(3 * torch.randn(coordinates, device="cuda") - 28)
    m = 0.4 * torch.randn(coordinates, device="cuda") * v.sqrt()
    p, g, into = torch.randn_like(m), 1e-4 * torch.randn_like(m), torch.empty_like(m)
    copied = _milliseconds(lambda: into.copy_(m), rounds)
    bandwidth = _BYTES * coordinates / copied / 1e6
    print(f"{torch.cuda.get_device_name()}, {coordinates:,} coordinates, copy {bandwidth:.0f} GB/s read and written\n")  # noqa: T201 - its output
    print("| codec | encode and guard, ps a coordinate | decode | recover and step | escaped |")  # noqa: T201 - as above
    print("|---|---:|---:|---:|---:|")  # noqa: T201 - as above
    for name in ("log8", "lin8", "bf16"):
        codec = CODECS[name].fit(m[: 1 << 20].cpu(), v[: 1 << 20].cpu(), CompiledClosedForm(constants))
        kernel = TritonKernel.of(codec, "cuda")
        if kernel is None:  # these have kernels
            raise AssertionError(name)
        found = kernel.guarded(constants, m, v)
        codes = Codes(*found.codes)
        times = [
            1e9 * _milliseconds(job, rounds) / coordinates
            for job in (
                lambda: kernel.guarded(constants, m, v),  # noqa: B023 - run in this turn
                lambda: kernel.decode(codes),  # noqa: B023 - as above
                lambda: kernel.step(known.body, h.options, scalars, codes, found.escapes, p, g),  # noqa: B023 - as above
            )
        ]
        share = 100 * len(found.escapes) / coordinates
        print(f"| {name} | {' | '.join(f'{time:.1f}' for time in times)} | {share:.2f} % |")  # noqa: T201 - as above


if __name__ == "__main__":
    main()
