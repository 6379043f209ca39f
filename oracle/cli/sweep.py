"""`gmc sweep`: bits and escapes while one choice, hyperparameter or part of the claim changes."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Literal, get_args

import click
from rich.table import Table

from guarded_moments.oracle.benchmark import SWEEPS, Point, sweep
from guarded_moments.oracle.benchmark.plot import draw_sweep
from guarded_moments.oracle.cli.common import FILE, NUMBER, check_claim, force_option, out, progress_bar
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json
from guarded_moments.oracle.pictures import require
from guarded_moments.reference.checkpoint import load_checkpoint
from guarded_moments.reference.checkpoint.encoding import Granularity
from guarded_moments.reference.checkpoint.writing import replacing
from guarded_moments.reference.codecs import CODECS


@click.command("sweep")
@click.argument("what", type=click.Choice(list(SWEEPS)))
@click.argument("checkpoint", type=FILE)
@click.option("--tolerance", type=NUMBER, default=0.01, show_default=True, metavar="TAU", help="In learning rates.")
@click.option("--grad-bound", type=NUMBER, default=1.0, show_default=True, metavar="G", help="May be inf.")
@click.option("--codec", type=click.Choice(list(CODECS)), default="log8", show_default=True)
@click.option("--grid", type=click.Choice(get_args(Granularity)), default="per-tensor", show_default=True)
@click.option("--guard", type=click.Choice(["exact", "closed"]), default="exact", show_default=True)
@json_option
@click.option("--plot", type=FILE, metavar="FILE", help="Draw the bits: a .png, .svg or .pdf.")
@force_option
def command(
    what: str,
    checkpoint: Path,
    tolerance: float,
    grad_bound: float,
    codec: str,
    grid: Granularity,
    guard: Literal["exact", "closed"],
    json_file: Path | None,
    plot: Path | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> None:
    """Compress CHECKPOINT again and again while WHAT changes, and show bits and escapes.

    Betas, eps and step are changed in what the checkpoint says, while its moments stay: another beta would have made
    other moments.  The options fix everything that does not change.

    \b
      gmc sweep tolerance optimizer.pt
      gmc sweep grad-bound optimizer.pt --codec lin8 --guard closed
      gmc sweep step optimizer.pt --json - --plot step.svg
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    check_claim(tolerance, grad_bound)
    check_outputs((json_file, plot), (checkpoint,), overwrite=force)
    if plot is not None:
        require(plot)
    native = load_checkpoint(checkpoint)
    points: list[Point] = []
    with progress_bar(what) as progress:
        total = len(SWEEPS[what].values)
        arguments = {"tolerance": tolerance, "grad_bound": grad_bound, "codec": codec, "grid": grid, "guard": guard}
        for point in sweep(what, native, **arguments):
            points.append(point)
            progress(len(points), total)
    if json_file != STANDARD_OUTPUT:
        out().print(_table(what, points))
    if json_file is not None:
        rows = [
            {"value": p.value, "bits": asdict(p.bits) | {"total": p.bits.total}, "escaped": p.escaped} for p in points
        ]
        bound = "inf" if math.isinf(grad_bound) else grad_bound  # JSON has no infinity
        fixed = {name: value for name, value in {**arguments, "grad_bound": bound}.items() if name != what}
        write_json(json_file, {"sweep": what, "fixed": fixed, "points": rows}, force=force)
    if plot is not None:
        with replacing(plot, overwrite=force) as temporary:
            draw_sweep(points, SWEEPS[what].text, temporary, plot.suffix[1:])


def _table(what: str, points: list[Point]) -> Table:
    table = Table(SWEEPS[what].text, box=None)
    for name in ("bits", "codes", "escapes", "grids", "metadata", "exact"):
        table.add_column(name, justify="right")
    for point in points:
        rate = point.bits
        parts = (rate.total, rate.codes, rate.escapes, rate.parameters, rate.metadata)
        table.add_row(point.value, *(f"{part:.3f}" for part in parts), f"{100 * point.escaped:.2f} %")
    return table
