"""Bits against tolerance, for every codec and horizon, early, in the middle and late in training: docs/trade.md.

Run: make trade.  What was measured is kept in a file of points, so that a run that was interrupted goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from guarded_moments.oracle.benchmark.altered import LATE, altered
from guarded_moments.oracle.pictures import figure
from guarded_moments.reference import compress, load_state_dict
from guarded_moments.reference.checkpoint.bit_rate import bit_rate
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.codecs import CODECS
from guarded_moments.reference.implementations import platform_description
from trained_state import checkpoint_option

TOLERANCES = (0.005, 0.01, 0.02, 0.05)
STATES = ("early", "middle", "late")
#: Each codec, and again with grids by blocks where that is worth a line.
CODINGS = (
    *((codec, "per-tensor") for codec in CODECS),
    *(("log8", "per-block"), ("ratio8", "per-row"), ("ratio8", "per-block")),
)
#: The horizons beyond the first update, and what is measured under them, in the middle of training.
LONGER = (Horizon.ALL,)
UNDER_LONGER = (("log8", "per-tensor"), ("ratio8", "per-row"), ("ratio8", "per-block"), ("entropy", "per-tensor"))
_SIZE = (13.0, 4.8)
_NATIVE = 64.0

_PAGE = """\
# Bits against tolerance

Generated, never edited. This regenerates it, on states that `examples/train_language_model.py` trains:

    {command}

{platform}. The states have {coordinates:,} coordinates of {tensors} tensors: *early*, before update {early:g};
*middle*, before update {middle:g}; *late*, the moments of the middle as if {late:,} updates had been made, when bias
correction is gone. `G` 1, the exact guard; bits a coordinate with everything counted, and in brackets what is stored
exactly. Native moments take 64 bits, and `bf16` alone, without a guard, 32.

![Bits against tolerance, a panel for each state](trade.png)

The same command draws it: `--plot docs/trade.png`.
"""
_LATER = """\
## Horizons

The middle state: what a guarantee for more than the first update costs. `all`: the first update in binary32, and every
later one in exact arithmetic (see [horizon.md](horizon.md)).

"""


class Point(NamedTuple):
    """One file."""

    state: str
    codec: str
    grid: str
    horizon: str
    tolerance: float
    bits: float
    escaped: float  #: share of all coordinates

    @property
    def coding(self) -> str:
        """What codes, as tables and the picture name it."""
        return self.codec if self.grid == "per-tensor" else f"{self.codec}, {self.grid}"


def wanted() -> Iterator[tuple[str, str, str, Horizon, float]]:
    """State, codec, grid, horizon and tolerance of every point."""
    for state in STATES:
        for codec, grid in CODINGS:
            yield from ((state, codec, grid, Horizon.FIRST, tau) for tau in TOLERANCES)
    for state in STATES[1:2]:
        for horizon in LONGER:
            for codec, grid in UNDER_LONGER:
                yield from ((state, codec, grid, horizon, tau) for tau in TOLERANCES)


def measured(states: Mapping[str, Any], points: list[Point], store: Path, seconds: float) -> bool:
    """Add what is missing, and say whether all is there; stops after so many seconds."""
    there = {point[:5] for point in points}
    started = time.monotonic()
    for state, codec, grid, horizon, tolerance in wanted():
        if (state, codec, grid, str(horizon), tolerance) in there:
            continue
        if time.monotonic() - started > seconds:
            return False
        arguments: dict[str, Any] = {"codec": codec, "grid": grid, "horizon": horizon}
        file = compress(states[state], tolerance=tolerance, grad_bound=1.0, **arguments)
        escaped = file.escapes / file.coordinates
        points.append(Point(state, codec, grid, str(horizon), tolerance, bit_rate(file).total, escaped))
        click.echo(f"{points[-1]}")
        store.write_text(json.dumps(points), encoding="utf-8")
    return True


def table(points: Sequence[Point], first: str, names: Sequence[tuple[str, Sequence[Point]]]) -> list[str]:
    """Rows of names, a column for each tolerance."""
    columns = sorted({point.tolerance for point in points})
    lines = [f"| {first} | {' | '.join(f'{tau:g}' for tau in columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name, own in names:
        cells = {point.tolerance: f"{point.bits:.2f} ({100 * point.escaped:.2f} %)" for point in own}
        lines.append(f"| {name} | {' | '.join(cells[tau] for tau in columns)} |")
    return [*lines, ""]


def page(points: Sequence[Point], facts: Mapping[str, Any]) -> str:
    """The page of the documentation."""
    lines = [_PAGE.format(**facts)]
    for state in STATES:
        here = [point for point in points if (point.state, point.horizon) == (state, str(Horizon.FIRST))]
        names = dict.fromkeys(point.coding for point in here)
        lines += [f"## {state.capitalize()}, the first update", ""]
        lines += table(here, "`tau`", [(name, [p for p in here if p.coding == name]) for name in names])
    lines.append(_LATER)
    for state in STATES[1:2]:
        own = {(p.codec, p.grid) for p in points if p.horizon != str(Horizon.FIRST)}
        here = [p for p in points if p.state == state and (p.codec, p.grid) in own]
        rows = sorted(dict.fromkeys((CODINGS.index((p.codec, p.grid)), p.coding, p.horizon) for p in here))
        lines += table(
            here,
            f"{state}, `tau`",
            [(f"{name}, {of}", [p for p in here if (p.coding, p.horizon) == (name, of)]) for _, name, of in rows],
        )
    return "\n".join(lines).rstrip() + "\n"


def draw(points: Sequence[Point], path: Path) -> None:
    """A panel for each state, a line for each codec."""
    drawn, panels = figure(*_SIZE, columns=len(STATES))
    for state, axes in zip(STATES, panels, strict=True):
        here = [point for point in points if (point.state, point.horizon) == (state, str(Horizon.FIRST))]
        for number, name in enumerate(dict.fromkeys(point.coding for point in here)):
            line = sorted((point.tolerance, point.bits) for point in here if point.coding == name)
            axes.plot(*zip(*line, strict=True), "os^vD*phX<>d"[number], linestyle="-", markersize=5, label=name)
        axes.set_xscale("log")
        axes.set_xticks(TOLERANCES, [f"{tau:g}" for tau in TOLERANCES])
        axes.minorticks_off()
        axes.set_title(state)
        axes.set_xlabel("tolerance tau, in learning rates")
        axes.set_ylim(0, _NATIVE)
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("bits per coordinate, everything counted (native: 64)")
    panels[-1].legend()
    drawn.savefig(path, format=path.suffix[1:])


@click.command()
@checkpoint_option
@click.option("--early", type=click.Path(path_type=Path), default=Path("build/early/optimizer.pt"), show_default=True)
@click.option("--points", type=click.Path(path_type=Path), default=Path("build/trade.json"), show_default=True)
@click.option("--seconds", type=float, default=float("inf"), help="Stop after so many, to go on another time.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write the page.")
@click.option("--plot", type=click.Path(path_type=Path), help="Where to draw the picture.")
def main(checkpoint: Path, early: Path, points: Path, seconds: float, output: Path | None, plot: Path | None) -> None:
    """Measure what is missing of the points, and write page and picture once all are there."""
    torch.set_num_threads(1)
    middle = load_state_dict(checkpoint)
    states = {"early": load_state_dict(early), "middle": middle, "late": altered(middle, updates=LATE)}
    content = json.loads(points.read_text(encoding="utf-8")) if points.exists() else []
    found = [Point(*row) for row in content]
    if not measured(states, found, points, seconds):
        click.echo("stopped: the same command goes on")
        return
    order = [(*key[:3], str(key[3]), key[4]) for key in wanted()]
    found = sorted((point for point in found if point[:5] in order), key=lambda point: order.index(point[:5]))
    if output is not None:
        parameters = middle["state"].values()
        facts = {
            "command": "make trade",
            "platform": platform_description(),
            "coordinates": sum(entry["exp_avg"].numel() for entry in parameters),
            "tensors": len(parameters),
            "late": LATE,
            **{name: float(next(iter(states[name]["state"].values()))["step"]) + 1 for name in ("early", "middle")},
        }
        output.write_text(page(found, facts), encoding="utf-8")
    if plot is not None:
        draw(found, plot)


if __name__ == "__main__":
    main()
