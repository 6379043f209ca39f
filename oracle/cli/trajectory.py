"""`gmc trajectory`: real training resumed from native, recovered and control states, and how far they part."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from guarded_moments.oracle.cli.common import FILE, force_option, out, progress_bar, said_of
from guarded_moments.oracle.named_objects import UnloadableError, attribute_at, in_one_line
from guarded_moments.oracle.pictures import require
from guarded_moments.oracle.trajectory import Plan, Resumed, Trajectory, follow, variants_of
from guarded_moments.oracle.trajectory.follow import Make
from guarded_moments.oracle.trajectory.table import as_json, header, page, rows
from guarded_moments.reference.checkpoint import load_checkpoint, read
from guarded_moments.reference.checkpoint.writing import check_output, replacing, write_bytes
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.errors import GuardedMomentsError, UnsupportedError

UPDATES, ORDERS = 200, 3


@click.command("trajectory")
@click.argument("compressed", type=FILE)
@click.option("--native", type=FILE, required=True, help="The checkpoint that was compressed.")
@click.option(
    "--training",
    required=True,
    metavar="MODULE:CALLABLE",
    help="Resumes the training: called with the path of the native checkpoint and an integer, the order of the data. "
    "FILE.py:CALLABLE is taken, too.",
)
@click.option(
    "--updates", type=click.IntRange(min=1), default=UPDATES, show_default=True, help="After resuming, in every run."
)
@click.option(
    "--orders", type=click.IntRange(min=1), default=ORDERS, show_default=True, help="Orders of the data: 0, 1, ..."
)
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write every point and loss as JSON.")
@click.option("--output", type=FILE, metavar="FILE.md", help="Write the page of the documentation.")
@click.option("--plot", type=FILE, metavar="FILE", help="Draw it (.png, .svg or .pdf).")
@force_option
def command(
    compressed: Path,
    native: Path,
    training: str,
    updates: int,
    orders: int,
    json_file: Path | None,
    output: Path | None,
    plot: Path | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> int:
    """Resume real training from native and recovered states, and report how far parameters and losses part.

    A claim covers the updates of its horizon under gradients that both runs share; runs with gradients of their own
    share those of the first update only. This measures what is seen after it, from the state in COMPRESSED (a .gmc
    file) beside controls: the native state again, one ulp on every moment, bf16 moments, the codec without its guard,
    zeroed moments, no state at all, and another order of the data. Each is run with gradients of its own (closed loop)
    and, but for the last, with the native run's (open loop). Nothing of it is a guarantee.

    \b
    The callable returns an object with
      optimizer          torch.optim.Adam or AdamW over the parameters, with the weights of the checkpoint
      gradients(update)  puts the gradients of update 0, 1, ... into p.grad, clipping included; returns the loss
    and must depend on nothing but its two arguments.

    \b
      gmc trajectory build/main-job/optimizer.gmc --native build/main-job/optimizer.pt \\
          --training examples/train_language_model.py:resume --plot trajectory.png
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    for path in (json_file, output, plot):
        if path is not None:
            check_output(path, overwrite=force, inputs=(compressed, native))
    if plot is not None:
        require(plot)
    state, checkpoint = read(compressed), load_checkpoint(native)
    make = _making(training, native)
    with said_of(native):
        variants = variants_of(state, checkpoint)
    started = time.perf_counter()
    plan = Plan(updates, range(orders))
    with progress_bar(f"{updates} updates from {len(variants)} states, {orders} orders") as progress, said_of(native):
        found = follow(make, variants, plan, progress)
    if json_file is not None:
        text = json.dumps(as_json(found), indent=1) + "\n"
        write_bytes(json_file, text.encode(), overwrite=force)
    claims = sorted({state.claim_for(tensor) for tensor in state.tensors}, key=Claim.sentence)
    if output is not None:
        typed = shlex.join(["gmc", *sys.argv[1:]])
        what, picture = f"{state.coordinates:,} parameters, `{training}`", None if plot is None else plot.name
        text = page(found, command=typed, claims=claims, what=what, picture=picture)
        write_bytes(output, text.encode(), overwrite=force)
    if plot is not None:
        with replacing(plot, overwrite=force) as temporary:
            importlib.import_module("guarded_moments.oracle.trajectory.plot").draw(found, temporary, plot.suffix[1:])
    _print(found, claims, time.perf_counter() - started)
    return 0


def _making(training: str, native: Path) -> Make:
    """The callable that a user named, with its errors in one line."""
    try:
        if ":" not in training:
            raise UnsupportedError(f"--training {training}: expected module:callable or file.py:callable")
        found: Any = attribute_at(training, [Path.cwd()])
    except UnloadableError as error:
        raise UnsupportedError(f"--training {error}") from None
    if not callable(found):
        raise UnsupportedError(f"--training {training}: is a {type(found).__name__}, expected something to call")

    def make(order: int) -> Resumed:
        try:
            run: Resumed = found(native, order)
        except GuardedMomentsError:
            raise
        except (Exception, SystemExit) as error:
            raise UnsupportedError(f"--training {training} cannot resume {native}: {in_one_line(error)}") from error
        if not hasattr(run, "optimizer") or not callable(getattr(run, "gradients", None)):
            raise UnsupportedError(
                f"--training {training}: what it returns has no 'optimizer' or no 'gradients(update)'"
            )
        return run

    return make


def _print(found: Trajectory, claims: list[Claim], seconds: float) -> None:
    console = out()
    for claim in claims:
        console.print(f"claim     {claim.sentence()}")
    console.print(
        "below     what was seen, beyond the claim; medians over the orders of the data (smallest to largest)"
    )
    for closed, title in ((True, "each run with its own gradients"), (False, "the native run's gradients for all")):
        console.print(f"\n{title}")
        names = header(found, closed=closed)
        table = Table(names[0], box=None)
        for name in names[1:]:
            table.add_column(name, justify="right")
        for row in rows(found, closed=closed):
            table.add_row(*row)
        console.print(table)
    console.print(f"\ntime      {seconds:.1f} s")
