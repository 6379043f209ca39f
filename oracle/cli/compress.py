"""`gmc compress`: encode, guard, escape, write."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Literal, get_args

import click
from rich.table import Table

from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    check_claim,
    force_option,
    foreign_rates,
    grad_bound_option,
    op_model_option,
    out,
    percent,
    progress_bar,
    tolerance_option,
)
from guarded_moments.oracle.stuck_steps import stuck_steps
from guarded_moments.reference.checkpoint import GuardedState, compress, load_checkpoint, read, write
from guarded_moments.reference.checkpoint.bit_rate import bit_rate, tensor_bit_rate
from guarded_moments.reference.checkpoint.encoding import Granularity
from guarded_moments.reference.checkpoint.file_format import bytes_beside
from guarded_moments.reference.checkpoint.writing import check_output
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.codecs import CODECS
from guarded_moments.reference.errors import GuardedMomentsError


@click.command("compress")
@click.argument("checkpoint", type=FILE)
@click.argument("output", type=FILE)
@tolerance_option
@grad_bound_option
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
@click.option("--horizon", default="1", show_default=True, help="Updates after recovery that are covered.")
@force_option
@click.option("-v", "--verbose", is_flag=True, help="One line per tensor.")
def command(
    checkpoint: Path,
    output: Path,
    tolerance: float,
    grad_bound: float,
    codec: str,
    grid: Granularity,
    grids_from: Path | None,
    guard: Literal["exact", "closed"],
    op_model: str | None,
    lr: float | None,
    horizon: str,
    force: bool,  # noqa: FBT001 - a flag on the command line
    verbose: bool,  # noqa: FBT001 - as above
) -> None:
    """Compress CHECKPOINT (a file of torch.save with the state_dict of torch's Adam or AdamW in it) into OUTPUT.

    The state_dict may be the whole file, or lie in a larger checkpoint beside weights and schedulers, as trainers save
    it; there may be several.

    Both moments of every parameter are stored in 8 bits, on grids chosen from the data.  A coordinate whose next update
    could then deviate by more than TAU learning rates for some gradient within G keeps its exact values, as does
    everything else in the file.

    \b
      gmc compress optimizer.pt optimizer.gmc --tolerance 0.01 --grad-bound 1.0
      gmc compress optimizer.pt fast.gmc --tolerance 0.02 --grad-bound inf --codec lin8 --guard closed
      gmc compress step2000.pt step2000.gmc --tolerance 0.01 --grad-bound 1.0 --grids-from step1000.gmc
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    check_claim(tolerance, grad_bound)
    Horizon.parse(horizon)
    check_output(output, overwrite=force, inputs=(checkpoint,))  # before the work, not after
    native = load_checkpoint(checkpoint)
    earlier = None if grids_from is None else read(grids_from)
    started = time.perf_counter()
    with progress_bar("compressing") as progress:
        try:
            state = compress(
                native,
                tolerance=tolerance,
                grad_bound=grad_bound,
                codec=codec,
                grid=grid,
                grids_from=earlier,
                guard=guard,
                implementation=op_model,
                lr=lr,
                progress=progress,
            )
        except GuardedMomentsError as error:
            raise type(error)(f"{checkpoint}: {error}") from None
    seconds = time.perf_counter() - started
    size = write(state, output, overwrite=force)
    if verbose:
        out().print(_tensor_table(state))
        out().print(_parts(state))
    _summary(state, checkpoint, output, size, seconds)


def _summary(state: GuardedState, checkpoint: Path, output: Path, size: int, seconds: float) -> None:
    console, coordinates, beside = out(), state.coordinates, bytes_beside(output)
    rate = (
        f"{8 * (size - beside) / coordinates:.2f} bits per coordinate (native 64), all overhead in"
        if coordinates
        else "-"
    )
    console.print(f"claim     {'; '.join(sorted({state.claim_for(t).sentence() for t in state.tensors})) or 'none'}")
    for line in (*foreign_rates(state), *stuck_steps(state)):
        console.print(line)
    console.print(f"stored    {coordinates:,} coordinates of {len(state.tensors) + len(state.kept)} tensors, {rate}")
    console.print(f"exact     {state.escapes:,} coordinates escaped ({percent(state.escapes, coordinates)})")
    reasons: Counter[str] = Counter()
    for tensor in state.tensors:
        reasons.update(tensor.reasons)
    for reason, count in reasons.most_common():
        console.print(f"            {count:,} {reason}")
    kept: Counter[str] = Counter()
    for whole in state.kept:
        kept[whole.because] += whole.numel
    for reason, count in kept.most_common():
        console.print(f"kept      {count:,} coordinates whole, not covered by the guard: {reason}")
    if beside:
        console.print(f"beside    {beside:,} bytes for what is no optimizer's state, bit for bit, not in the bit rate")
    console.print(f"time      {seconds:.2f} s, {1e9 * seconds / coordinates if coordinates else 0:.0f} ns a coordinate")
    console.print(f"written   {output}  {size:,} bytes, from {checkpoint.stat().st_size:,}")


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
