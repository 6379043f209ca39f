"""`gmc bench`: every codec measured in one run, beside what was published."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.console import Console

from guarded_moments.oracle.benchmark import Setting, as_json, markdown, measure
from guarded_moments.oracle.benchmark.measure import Benchmark
from guarded_moments.oracle.benchmark.plot import draw_benchmark
from guarded_moments.oracle.cli.common import FILE, NUMBER, check_claim, force_option
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json, write_text
from guarded_moments.oracle.pictures import require
from guarded_moments.reference.checkpoint import load_checkpoint
from guarded_moments.reference.checkpoint.writing import replacing


@click.command("bench")
@click.argument("checkpoint", type=FILE)
@click.option("--tolerance", type=NUMBER, default=0.01, show_default=True, metavar="TAU", help="In learning rates.")
@click.option("--grad-bound", type=NUMBER, default=1.0, show_default=True, metavar="G", help="May be inf.")
@click.option(
    "--coordinates",
    type=click.IntRange(min=1),
    default=1 << 23,
    show_default=True,
    help="Time at least so many: the state is repeated.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Medians are over these.")
@click.option("--no-audit", is_flag=True, help="Do not decide every coordinate of every codec, which takes minutes.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the page there, not to standard output.")
@json_option
@click.option("--plot", type=FILE, metavar="FILE", help="Draw time against bits: a .png, .svg or .pdf.")
@force_option
def command(
    checkpoint: Path,
    tolerance: float,
    grad_bound: float,
    coordinates: int,
    rounds: int,
    no_audit: bool,  # noqa: FBT001 - a flag on the command line
    output: Path | None,
    json_file: Path | None,
    plot: Path | None,
    force: bool,  # noqa: FBT001 - as above
) -> None:
    """Measure every codec on CHECKPOINT: bits, times by stage, and each published claim beside what was seen.

    Codecs take turns in every round, and a copy of the moments is timed in the same rounds; ratios within one run mean
    something, nanoseconds of one machine little.  bitsandbytes and torchao are timed too where they are installed.

    \b
      gmc bench optimizer.pt
      gmc bench optimizer.pt --output docs/benchmark.md --json bench.json --plot bench.svg --force
      gmc bench optimizer.pt --json - --no-audit --rounds 3
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    check_claim(tolerance, grad_bound)
    check_outputs((output, json_file, plot), (checkpoint,), overwrite=force)
    if plot is not None:
        require(plot)
    native = load_checkpoint(checkpoint)
    setting = Setting(tolerance, grad_bound, coordinates, rounds, audited=not no_audit)
    with Console(stderr=True, quiet=not sys.stderr.isatty()).status("measuring") as status:
        found = measure(native, setting, status.update)
    page = markdown(found, _command(checkpoint, setting, output))
    _write(found, page, output, json_file, plot, force=force)


def _write(
    found: Benchmark, page: str, output: Path | None, json_file: Path | None, plot: Path | None, *, force: bool
) -> None:
    if output is not None:
        write_text(output, page, force=force)
    elif json_file != STANDARD_OUTPUT:
        click.echo(page, nl=False)
    if json_file is not None:
        write_json(json_file, as_json(found), force=force)
    if plot is not None:
        with replacing(plot, overwrite=force) as temporary:
            draw_benchmark(found, temporary, plot.suffix[1:])


def _command(checkpoint: Path, setting: Setting, output: Path | None) -> str:
    """What writes the same page again."""
    words, usual = ["gmc", "bench", str(checkpoint)], Setting()
    for name in ("tolerance", "grad_bound", "coordinates", "rounds"):
        if getattr(setting, name) != getattr(usual, name):
            words += [f"--{name.replace('_', '-')}", f"{getattr(setting, name):g}"]
    words += [] if setting.audited else ["--no-audit"]
    words += ["--output", str(output), "--force"] if output is not None else []
    return shlex.join(words)
