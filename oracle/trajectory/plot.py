"""Relative L2 against the update, each run with its own gradients and with the native ones side by side."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from guarded_moments.oracle.pictures import figure
from guarded_moments.oracle.trajectory.follow import Trajectory

_SIZE = (11.0, 4.8)  #: width and height in inches
_MARKS = "osD^vP*X"


def draw(found: Trajectory, path: Path, kind: str) -> None:
    """Draw it; a line is the median over the orders, the area around it reaches to the smallest and the largest."""
    drawn, (closed, opened) = figure(*_SIZE, columns=2)
    _panel(found, closed, own=True)
    _panel(found, opened, own=False)
    closed.set_title("each run with its own gradients")
    opened.set_title("the native run's gradients for all")
    closed.set_ylabel("distance from native / movement of native (L2)")
    drawn.legend(*closed.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    drawn.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _panel(found: Trajectory, axes: Any, *, own: bool) -> None:  # noqa: ANN401 - matplotlib's
    for number, name in enumerate(found.variants):
        courses = found.of(name, closed=own)
        values = (
            [[c.points[at].relative_l2 for c in courses] for at in range(len(courses[0].points))] if courses else []
        )
        if not any(value for at in values for value in at):
            continue  # equal throughout: nothing to see on a logarithmic axis
        updates = [point.update for point in courses[0].points]
        mark = {"color": f"C{number}", "marker": _MARKS[number % len(_MARKS)], "markersize": 4}
        axes.plot(updates, [statistics.median(at) for at in values], label=name, **mark)
        axes.fill_between(
            updates, [min(at) for at in values], [max(at) for at in values], color=f"C{number}", alpha=0.2
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("updates since resuming")
    axes.grid(visible=True, alpha=0.3)
