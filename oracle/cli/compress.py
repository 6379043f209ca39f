"""`gmc compress`: encode, guard, escape, write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import click
from rich.table import Table

from guarded_moments.oracle.cli.bounding import Bound, bound_of, bound_options
from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    check_claim,
    force_option,
    implementation_option,
    is_folder,
    op_model_option,
    out,
    percent,
    progress_bar,
    said_of,
    tolerance_option,
    working,
)
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json
from guarded_moments.oracle.cli.summary import Summary
from guarded_moments.reference.checkpoint import (
    GuardedState,
    compress,
    load_checkpoint,
    parameters_of,
    read,
    write,
)
from guarded_moments.reference.checkpoint.bit_rate import bit_rate, tensor_bit_rate
from guarded_moments.reference.checkpoint.distributed import Folder, compress_shards, finish_compressed
from guarded_moments.reference.checkpoint.encoding import Granularity
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.writing import check_output
from guarded_moments.reference.claim import LONGEST_HORIZON, Horizon
from guarded_moments.reference.codecs import CODECS


class _Done(NamedTuple):
    """One file, compressed and written."""

    state: GuardedState
    written: Path
    native_bytes: int


@click.command("compress")
@click.argument("checkpoint", type=FILE)
@click.argument("output", type=FILE)
@tolerance_option
@bound_options
@click.option(
    "--codec",
    type=click.Choice(list(CODECS)),
    default=next(iter(CODECS)),
    show_default=True,
    help=" ".join(f"{name}: {kind.summary}." for name, kind in CODECS.items()),
)
@click.option(
    "--grid",
    type=click.Choice(get_args(Granularity)),
    default="per-tensor",
    show_default=True,
    help="What has grids of its own.  Rows and blocks of 256 take up to 0.25 bits more and escape less: worth it where "
    "much escapes, at small tolerances.",
)
@click.option(
    "--grids-from",
    type=FILE,
    metavar="FILE.gmc",
    help="Take the grids of an earlier checkpoint of the same run, and save choosing them.",
)
@op_model_option
@click.option("--lr", type=NUMBER, help="Learning rate of the first update, where it is not the checkpoint's.")
@click.option(
    "--guard",
    type=click.Choice(["exact", "closed"]),
    default="exact",
    show_default=True,
    help="exact: search the worst gradient of what the closed form rejects; closed: do not, and escape more.",
)
@click.option(
    "--horizon",
    metavar="1|K|all",
    default=str(Horizon.FIRST),
    show_default=True,
    help="Updates after recovery that are covered, if both runs see one sequence of gradients: the first, each of the "
    f"first K (up to {LONGEST_HORIZON}), or all of them, the later ones in exact arithmetic.",
)
@implementation_option("What computes the codes; the file is the same.", "checkpoints")
@json_option
@force_option
@click.option("-v", "--verbose", is_flag=True, help="One line per tensor.")
def command(
    checkpoint: Path,
    output: Path,
    tolerance: float,
    grad_bounds: tuple[float, ...] | None,
    clip_norm: float | None,
    norm_type: str,
    clip_value: float | None,
    codec: str,
    grid: Granularity,
    grids_from: Path | None,
    guard: Literal["exact", "closed"],
    op_model: str | None,
    lr: float | None,
    horizon: str,
    kernels: Kernels,
    json_file: Path | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
    verbose: bool,  # noqa: FBT001 - as above
) -> None:
    """Compress CHECKPOINT (a file of torch.save with the state_dict of torch's Adam or AdamW in it) into OUTPUT.

    The state_dict may be the whole file, or lie in a larger checkpoint beside weights and schedulers, as trainers save
    it; there may be several.  A folder of torch.distributed.checkpoint becomes a folder with one .gmc file for each of
    its files, compressed one after the other.

    Both moments of every parameter are stored in 8 bits, on grids chosen from the data.  A coordinate whose next update
    could then deviate by more than TAU learning rates for some gradient within G keeps its exact values, as does
    everything else in the file.

    \b
      gmc compress optimizer.pt optimizer.gmc --tolerance 0.01 --grad-bound 1.0
      gmc compress optimizer.pt optimizer.gmc --tolerance 0.01 --clip-norm 1.0
      gmc compress optimizer.pt fast.gmc --tolerance 0.02 --grad-bound inf --codec lin8 --guard closed
      gmc compress step2000.pt step2000.gmc --tolerance 0.01 --grad-bound 1.0 --grids-from step1000.gmc
      gmc compress optimizer.pt long.gmc --tolerance 0.02 --grad-bound inf --horizon 100
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    bound = bound_of(grad_bounds, clip_norm, norm_type, clip_value)
    check_claim(tolerance, bound.grad_bound)
    covered = Horizon.parse(horizon)
    check_outputs((json_file,), (checkpoint, output), overwrite=force)
    choices: dict[str, Any] = {
        "tolerance": tolerance,
        "grad_bound": bound.grad_bound,
        "codec": codec,
        "grid": grid,
        "grids_from": None if grids_from is None else read(grids_from),
        "guard": guard,
        "implementation": op_model,
        "lr": lr,
        "horizon": covered,
        "kernels": kernels,
    }
    work = _compress_folder if is_folder(checkpoint) else _compress_file
    summary, started = Summary(), time.perf_counter()
    console = out(quiet=json_file == STANDARD_OUTPUT)
    native_bytes = 0
    for shard in work(checkpoint, output, choices, bound, force=force):
        native_bytes += shard.native_bytes
        if verbose:
            console.print(_tensor_table(shard.state))
            console.print(_parts(shard.state))
        summary.add(shard.state, shard.written)
    seconds = time.perf_counter() - started
    summary.print(console, output, native_bytes, seconds)
    if json_file is not None:
        write_json(json_file, summary.as_json(output, native_bytes, seconds), force=force)


def _compress_file(
    checkpoint: Path, output: Path, choices: dict[str, Any], bound: Bound, *, force: bool
) -> Iterator[_Done]:
    check_output(output, overwrite=force, inputs=(checkpoint,))  # before the work, not after
    native = load_checkpoint(checkpoint)
    with progress_bar("compressing") as progress, said_of(checkpoint):
        bound.require_undecayed((parameter.where, parameter.hyperparameters) for parameter in parameters_of(native))
        spool = Spool(output.parent)
        state = compress(native, **choices, progress=progress, spool=spool)
    with working(f"writing {output} and reading it back"):
        write(state, output, overwrite=force, spool=spool)
    yield _Done(state, output, checkpoint.stat().st_size)


def _compress_folder(
    checkpoint: Path,
    output: Path,
    choices: dict[str, Any],
    bound: Bound,
    *,
    force: bool,  # noqa: ARG001 - a folder is never replaced
) -> Iterator[_Done]:
    """Each file of a folder of torch.distributed.checkpoint; the output then takes its place when all are there."""
    if not isinstance(bound.grad_bound, float):
        raise click.UsageError("--grad-bound: one for all, since each file of a folder has its own param_groups")
    native = Folder(checkpoint)
    with progress_bar("compressing files") as progress:
        for done, shard in enumerate(compress_shards(native, output, **choices)):
            state = shard.state
            bound.require_undecayed((tensor.where, state.hyperparameters_of(tensor)) for tensor in state.tensors)
            yield _Done(shard.state, shard.path, (checkpoint / shard.file).stat().st_size)
            progress(done + 1, len(native.files))
    finish_compressed(native, output)


def _tensor_table(state: GuardedState) -> Table:
    table = Table("tensor", "op model", "codec", box=None)
    for name in ("coordinates", "escaped", "bits"):
        table.add_column(name, justify="right")
    for tensor in state.tensors:
        escapes = len(tensor.escapes)
        names = (tensor.where, tensor.implementation, tensor.codec.name)
        bits = tensor_bit_rate(tensor)
        table.add_row(*names, f"{tensor.numel:,}", percent(escapes, tensor.numel), f"{bits:.2f}")
    for kept in state.kept:
        table.add_row(kept.where, f"kept whole: {kept.because}", "-", f"{kept.numel:,}", "-", "-")
    return table


def _parts(state: GuardedState) -> str:
    rate = bit_rate(state)
    return (
        f"bits      {rate.codes:.3f} codes, {rate.escapes:.3f} escapes, {rate.parameters:.3f} grids and scales, "
        f"{rate.metadata:.3f} metadata: {rate.total:.3f} per coordinate"
    )
