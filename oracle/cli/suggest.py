"""`gmc suggest`: what each tolerance and gradient bound would cost, so that they can be chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
from rich.table import Table

from guarded_moments.oracle.benchmark.plot import draw_choices
from guarded_moments.oracle.benchmark.suggest import (
    COORDINATES,
    GRAD_BOUNDS,
    TOLERANCES,
    Choice,
    Suggestion,
    least_tolerance,
)
from guarded_moments.oracle.cli.bounding import NUMBERS
from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    check_claim,
    force_option,
    op_model_option,
    out,
    progress_bar,
    said_of,
)
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json
from guarded_moments.oracle.pictures import require
from guarded_moments.reference.checkpoint import load_checkpoint
from guarded_moments.reference.checkpoint.writing import replacing
from guarded_moments.reference.codecs import CODECS

#: What share may be stored exactly at the tolerance that is pointed out.
_FEW = 0.05


def _listed(numbers: Sequence[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


@click.command("suggest")
@click.argument("checkpoint", type=FILE)
@click.option(
    "--tolerance",
    "tolerances",
    type=NUMBERS,
    default=_listed(TOLERANCES),
    show_default=True,
    metavar="TAU[,TAU...]",
    help="In learning rates.",
)
@click.option(
    "--grad-bound",
    "grad_bounds",
    type=NUMBERS,
    default=_listed(GRAD_BOUNDS),
    show_default=True,
    metavar="G[,G...]",
    help="May be inf.",
)
@click.option("--codec", type=click.Choice(list(CODECS)), default="log8", show_default=True)
@click.option("--guard", type=click.Choice(["exact", "closed"]), default="exact", show_default=True)
@op_model_option
@click.option("--lr", type=NUMBER, help="Learning rate of the first update, where it is not the checkpoint's.")
@click.option(
    "--coordinates",
    type=click.IntRange(min=1),
    default=COORDINATES,
    show_default=True,
    help="Look at about so many, evenly spaced in every tensor.",
)
@json_option
@click.option("--plot", type=FILE, metavar="FILE", help="Draw bits against tolerances: a .png, .svg or .pdf.")
@force_option
def command(
    checkpoint: Path,
    tolerances: tuple[float, ...],
    grad_bounds: tuple[float, ...],
    codec: str,
    guard: Literal["exact", "closed"],
    op_model: str | None,
    lr: float | None,
    coordinates: int,
    json_file: Path | None,
    plot: Path | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> None:
    """Show what CHECKPOINT would take at each tolerance and gradient bound: bits per coordinate, and how many escape.

    A smaller tolerance keeps the first update nearer to native Adam's and stores more coordinates exactly.  The bound
    hardly matters, unless it is far below the gradients of the run: where clipping gives none, take inf.

    \b
      gmc suggest optimizer.pt
      gmc suggest optimizer.pt --tolerance 0.005,0.01,0.02 --grad-bound 1,inf --coordinates 1000000000
      gmc suggest optimizer.pt --json - --plot choices.svg
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    for tolerance in tolerances:
        check_claim(tolerance, grad_bounds)
    check_outputs((json_file, plot), (checkpoint,), overwrite=force)
    if plot is not None:
        require(plot)
    native = load_checkpoint(checkpoint)
    found: list[Choice] = []
    with progress_bar("compressing") as progress, said_of(checkpoint):
        suggestion = Suggestion(native, coordinates)
        more = {"codec": codec, "guard": guard, "implementation": op_model, "lr": lr}
        for choice in suggestion.choices(tolerances, grad_bounds, **more):
            found.append(choice)
            progress(len(found), len(tolerances) * len(grad_bounds))
    if json_file != STANDARD_OUTPUT:
        _print(suggestion, found, tolerances, grad_bounds)
    if json_file is not None:
        points = [{**asdict(choice), "grad_bound": _in_json(choice.grad_bound)} for choice in found]
        counts = {"coordinates": suggestion.coordinates, "looked_at": suggestion.looked_at}
        write_json(json_file, {**counts, "codec": codec, "guard": guard, "choices": points}, force=force)
    if plot is not None:
        with replacing(plot, overwrite=force) as temporary:
            draw_choices(found, temporary, plot.suffix[1:])


def _in_json(number: float) -> float | str:
    """JSON has no infinity."""
    return number if math.isfinite(number) else str(number)


def _print(
    suggestion: Suggestion, found: Sequence[Choice], tolerances: Sequence[float], grad_bounds: Sequence[float]
) -> None:
    table = Table("tau", box=None)
    for bound in grad_bounds:
        table.add_column(f"G = {bound:g}", justify="right")
    costs = {(choice.tolerance, choice.grad_bound): choice for choice in found}
    for tolerance in tolerances:
        cells = [costs[tolerance, bound] for bound in grad_bounds]
        table.add_row(f"{tolerance:g}", *(f"{cell.bits:.2f} bits, {100 * cell.escaped:.2f} % exact" for cell in cells))
    out().print(table)
    looked, whole = suggestion.looked_at, suggestion.coordinates
    of = "all" if looked == whole else f"{looked:,}, evenly spaced, of"
    out().print(f"\nlooked at  {of} {whole:,} coordinates; native takes 64 bits")
    least = least_tolerance(found, _FEW)
    if least is not None:
        out().print(
            f"tau {least:g}  is the smallest of these at which no more than {100 * _FEW:g} % are stored exactly"
        )
