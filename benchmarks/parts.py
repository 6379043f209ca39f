"""What it costs to audit in parts: throughput, memory, bytes on the way, and seven billion parameters from that.

Run: make parts.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from guarded_moments.oracle.audit import audit
from guarded_moments.oracle.audit.whole import PART
from guarded_moments.reference import GuardedState, compress, load_state_dict
from guarded_moments.reference.checkpoint import parameters_of
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order
from guarded_moments.reference.implementations import platform_description
from trained_state import checkpoint_option

_PROJECTED = 7_000_000_000
_TENSORS = 8  #: of the tiled state; each is cut into parts
_WORKERS = 100  #: that the projection is spelled out for
_AHEAD = 3
_MEBI = 1 << 20
_HOUR = 3600.0

_PAGE = """\
# What an audit in parts costs

Generated, never edited.  This regenerates it, on a state that `make audit` trains:

    {command}

{platform}, cores to run on: {cores}, which did other work too; one thread a worker.
{coordinates:,} coordinates (the state of the main job, tiled), parts of {part:,}.  The start of the workers and their
compiling are left out; a worker that has only imported what it needs holds {resting:.0f} MiB.

| workers | seconds | of processors | million coordinates a second | a processor second | largest worker, MiB |
|---:|---:|---:|---:|---:|---:|
{rows}

On their way to a worker: {shipped:.1f} bytes a coordinate.

## Seven billion parameters, projected

From the least throughput above, {each:.2f} million coordinates a processor second, and on the assumption that parts are
as hard as here and that the reading process keeps up:

- {hours:.1f} core hours; {minutes:.1f} minutes with {workers} workers;
- {sent:.0f} GB on their way to workers; {read:.0f} GB of native moments read once, one file of a folder at a time;
- {peak:.0f} MiB a worker, whatever the size of the checkpoint.
"""


class Run(NamedTuple):
    """One audit."""

    workers: int
    seconds: float
    processor: float  #: seconds of all workers together
    peak: int  #: bytes of the largest worker


def tiled(checkpoint: Mapping[str, Any], coordinates: int) -> dict[str, Any]:
    """The moments of a checkpoint, one after the other and again from the start, as a few large tensors."""
    parameters = parameters_of(checkpoint)
    m, v = (torch.cat([in_memory_order(moment) for moment in moments]) for moments in _columns(parameters))
    size = coordinates // _TENSORS
    repeats = -(-size // len(m))
    step = checkpoint["state"][parameters[0].key]["step"]
    entry = {"step": step, "exp_avg": m.repeat(repeats)[:size], "exp_avg_sq": v.repeat(repeats)[:size]}
    group = {**checkpoint["param_groups"][0], "params": list(range(_TENSORS)), "param_names": None}
    return {"state": {key: dict(entry) for key in range(_TENSORS)}, "param_groups": [group]}


def _columns(parameters: list[Any]) -> tuple[list[Any], list[Any]]:
    return [p.m for p in parameters], [p.v for p in parameters]


def measured(state: GuardedState, native: Mapping[str, Any], workers: int) -> Run:
    """An audit by that many processes, after one that is not counted: their start and compiling are left out."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as executor:
        seconds = processor = 0.0
        for _ in range(2):
            before, started = _processor(executor, workers), time.perf_counter()
            if not audit(state, native, executor=executor, ahead=_AHEAD * workers).holds:
                raise click.ClickException("the claim does not hold: the figures would mean nothing")
            seconds, processor = time.perf_counter() - started, _processor(executor, workers) - before
    return Run(workers, seconds, processor, 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _processor(executor: ProcessPoolExecutor, workers: int) -> float:
    """Processor seconds of all workers so far."""
    return sum(dict(executor.map(_used, range(8 * workers))).values())


def _used(_: int) -> tuple[int, float]:
    used = os.getpid(), time.process_time()
    time.sleep(0.05)  # so that no worker takes all of these
    return used


def _imported() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def idle() -> int:
    """Bytes of a worker that has only imported what it needs."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        return executor.submit(_imported).result()


def page(runs: list[Run], resting: int, coordinates: int, shipped: float, command: str) -> str:
    """The page of the documentation."""
    rows = [
        f"| {run.workers} | {run.seconds:.1f} | {run.processor:.1f} | {coordinates / run.seconds / 1e6:.2f} | "
        f"{coordinates / run.processor / 1e6:.2f} | {run.peak / _MEBI:.0f} |"
        for run in runs
    ]
    each = min(coordinates / run.processor for run in runs)
    return _PAGE.format(
        command=command,
        platform=platform_description(),
        cores=len(os.sched_getaffinity(0)),
        coordinates=coordinates,
        part=PART,
        resting=resting / _MEBI,
        rows="\n".join(rows),
        shipped=shipped,
        each=each / 1e6,
        hours=_PROJECTED / each / _HOUR,
        workers=_WORKERS,
        minutes=_PROJECTED / each / _WORKERS / 60,
        sent=_PROJECTED * shipped / 1e9,
        read=_PROJECTED * 8 / 1e9,
        peak=max(run.peak for run in runs) / _MEBI,
    )


@click.command()
@checkpoint_option
@click.option("--coordinates", default=8 * PART, show_default=True, help="Of the state, by tiling.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the page here, too.")
def main(checkpoint: Path, coordinates: int, output: Path | None) -> None:
    """Measure audits by one and by two worker processes, and project from them."""
    native = tiled(load_state_dict(checkpoint), coordinates)
    state = compress(native, tolerance=0.01, grad_bound=1.0)
    resting = idle()
    runs = [measured(state, native, workers) for workers in (1, 2)]
    stored = sum(t.m_codes.nbytes + t.v_codes.nbytes + t.escapes.nbytes for t in state.tensors)
    shipped = 8 + 1 + stored / state.coordinates  # native moments, and which op model
    command = f"python benchmarks/parts.py --coordinates {coordinates}" + (f" --output {output}" if output else "")
    text = page(runs, resting, state.coordinates, shipped, command)
    click.echo(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
