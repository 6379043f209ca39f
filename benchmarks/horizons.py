"""What a longer horizon costs: slack of rounding, coordinates stored exactly and bits, on a trained state.

Run: .venv/bin/python benchmarks/horizons.py --output docs/horizons.md
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import click

from guarded_moments.oracle.benchmark.altered import LATE, altered
from guarded_moments.reference import compress, load_state_dict
from guarded_moments.reference.checkpoint.bit_rate import bit_rate
from guarded_moments.reference.checkpoint.encoding import rate_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter
from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.horizon import Run, later_constants
from guarded_moments.reference.implementations import implementation_for, platform_description
from trained_state import checkpoint_option, largest_parameter

HORIZONS = (*map(Horizon, (1, 2, 10, 100)), Horizon.ALL)
TOLERANCE = 0.01
#: `|m|/sqrt(v)` at the most that training with betas 0.9 and 0.999 leads to.
LARGEST_RATIO = 7.2703

_PAGE = """\
# What a longer horizon costs

Generated, never edited.  This regenerates it, on a state that `make audit` trains:

    .venv/bin/python benchmarks/horizons.py --output docs/horizons.md

{platform}.  Tolerance {tolerance:g}, infinite `G`, the exact guard; bits a coordinate with everything counted (native
64), and in brackets what is stored exactly.  *Late*: the same moments as if {late:,} updates had been made.  *Slack*:
what the rounding of both runs may add to a deviation at the last update, late, with `|m|/sqrt(v)` at its largest, in
learning rates; with the horizon `all` only the rounding of the first update is counted.  *Compress*: seconds that
`{codings[0]}` took on one thread, `G` and searches included.

| horizon | slack |{heads} compress, s |
|---|---:|{lines}---:|
{rows}
"""


@click.command()
@checkpoint_option
@click.option("--output", type=click.Path(path_type=Path), help="Write a page there; by default it is printed.")
def main(checkpoint: Path, output: Path | None) -> None:
    """Measure and print."""
    native = load_state_dict(checkpoint)
    states = {"": native, " late": altered(native, updates=LATE)}
    codings = (("log8", "per-tensor"), ("ratio8", "per-block"))
    heads = "".join(f" {codec}{state} |" for codec, _ in codings for state in states)
    rows = "\n".join(_rows(largest_parameter(checkpoint), states, codings))
    page = _PAGE.format(
        platform=platform_description(),
        tolerance=TOLERANCE,
        late=LATE,
        codings=[codec for codec, _ in codings],
        heads=heads,
        lines="---:|" * (len(codings) * len(states)),
        rows=rows,
    )
    if output is None:
        click.echo(page)
    else:
        output.write_text(page, encoding="utf-8")


def _rows(parameter: Parameter, states: dict[str, object], codings: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for horizon in HORIZONS:
        cells, seconds = [], 0.0
        for codec, grid in codings:
            for state in states.values():
                began = time.perf_counter()
                made = compress(
                    state,  # type: ignore[arg-type]
                    tolerance=TOLERANCE,
                    grad_bound=math.inf,
                    codec=codec,
                    grid=grid,  # type: ignore[arg-type]
                    horizon=horizon,
                )
                seconds = seconds or time.perf_counter() - began
                cells.append(f"{bit_rate(made).total:.2f} ({100 * made.escapes / made.coordinates:.2f} %)")
        yield f"| {horizon} | {_slack(parameter, horizon):.2g} | {' | '.join(cells)} | {seconds:.0f} |"


def _slack(parameter: Parameter, horizon: Horizon) -> float:
    """Of both runs, at the last update of a horizon, late in training."""
    implementation, lr = implementation_for(parameter.param_group), rate_of(parameter)
    run = Run(implementation, parameter.hyperparameters, LATE, lr)
    updates = Horizon(horizon.updates or 1)
    claim = Claim(Tolerance(TOLERANCE), GradientBound(math.inf), implementation.name, updates)
    k = later_constants(claim, run)[-1]
    return 2 * (k.step * (k.slack_moment * LARGEST_RATIO + k.slack_gradient) + k.slack_floor) / lr


if __name__ == "__main__":
    main()
