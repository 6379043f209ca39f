"""`gmc crosscheck`: other implementations of Adam beside the op models, as a page in Markdown."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from guarded_moments.oracle.cli.common import FILE, force_option
from guarded_moments.oracle.crosscheck import ADAPTERS, SEED, NotMeasured, Report, adapters_named, markdown
from guarded_moments.oracle.crosscheck.report import CrossCheck
from guarded_moments.reference.checkpoint.writing import replacing


@click.command("crosscheck")
@click.option("--output", type=FILE, metavar="FILE", help="Write the page there, not to standard output.")
@click.option("--only", multiple=True, metavar="NAME", help="Measure this implementation only; may be repeated.")
@click.option("--seed", type=click.IntRange(min=0), default=SEED, show_default=True, help="Of the drawn states.")
@force_option
def command(
    output: Path | None,
    only: tuple[str, ...],
    seed: int,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> None:
    """Measure other implementations of Adam, and write a table of which op model each follows.

    optax, torchao, bitsandbytes, torch.compile and torch's own paths: in how many elements each deviates from the
    nearest op model, by how many units in the last place, and what that does to the first update in learning rates.
    Those whose package is not installed are listed as not measured; the extra `crosscheck` installs all.
    """
    asked, regenerates = adapters_named(only), _command(output, only, seed)
    if output is None:
        click.echo(markdown(_report(asked, seed), regenerates), nl=False)
        return
    with replacing(output, overwrite=force) as temporary:  # first: minutes spent on what cannot be written are lost
        report = _report(asked, seed)
        temporary.write_text(markdown(report, regenerates), encoding="utf-8")
    measured = sum(not isinstance(result, NotMeasured) for result in report.results)
    click.echo(f"{output}: {measured} of {len(ADAPTERS)} implementations measured")


def _report(asked: list[str], seed: int) -> Report:
    """What was seen of those that were asked for, and a line for each of the others."""
    check = CrossCheck(seed)
    results = {
        name: check.measure(ADAPTERS[name])
        for name in track(
            asked,
            description=f"measuring {len(asked)} implementations",
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
    }
    left_out = {name: NotMeasured(ADAPTERS[name], "left out with --only") for name in ADAPTERS if name not in results}
    return check.report([(results | left_out)[name] for name in ADAPTERS])


def _command(output: Path | None, only: tuple[str, ...], seed: int) -> str:
    """What writes the same page again."""
    words = ["gmc", "crosscheck"]
    words += [word for name in only for word in ("--only", name)]
    words += ["--seed", str(seed)] if seed != SEED else []
    words += ["--output", str(output), "--force"] if output is not None else []
    return shlex.join(words)
