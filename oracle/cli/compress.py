"""`gmc compress`: encode, guard, escape, write."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Literal

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
from guarded_moments.reference.checkpoint import GuardedState, compress, load_checkpoint, write
from guarded_moments.reference.checkpoint.file_format import bytes_beside
from guarded_moments.reference.checkpoint.writing import check_output
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.errors import GuardedMomentsError


@click.command("compress")
@click.argument("checkpoint", type=FILE)
@click.argument("output", type=FILE)
@tolerance_option
@grad_bound_option
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

    Both moments of every parameter are stored in 8 bits on logarithmic grids chosen per tensor.  A coordinate whose
    next update could then deviate by more than TAU learning rates for some gradient within G keeps its exact values,
    as does everything else in the file.
    """
    check_claim(tolerance, grad_bound)
    Horizon.parse(horizon)
    check_output(output, overwrite=force, inputs=(checkpoint,))  # before the work, not after
    native = load_checkpoint(checkpoint)
    started = time.perf_counter()
    with progress_bar("compressing") as progress:
        try:
            state = compress(
                native,
                tolerance=tolerance,
                grad_bound=grad_bound,
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
    table = Table("tensor", "op model", box=None)
    for name in ("coordinates", "escaped", "bits"):
        table.add_column(name, justify="right")
    for tensor in state.tensors:
        escapes = len(tensor.escapes)
        bits = 16 + 64 * escapes / tensor.numel
        name = tensor.implementation
        table.add_row(tensor.where, name, f"{tensor.numel:,}", percent(escapes, tensor.numel), f"{bits:.2f}")
    for kept in state.kept:
        table.add_row(kept.where, f"kept whole: {kept.because}", f"{kept.numel:,}", "-", "-")
    return table
