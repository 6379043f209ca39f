"""Pictures of a benchmark, of a sweep and of the choices for a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from guarded_moments.oracle.benchmark.measure import Benchmark
from guarded_moments.oracle.benchmark.stages import TOTAL
from guarded_moments.oracle.benchmark.suggest import Choice
from guarded_moments.oracle.benchmark.sweep import Point
from guarded_moments.oracle.pictures import figure

_BITS = "bits per coordinate, everything counted (native: 64)"
_SIZE = (7.0, 4.5)  #: width and height in inches


def draw_benchmark(found: Benchmark, path: Path, kind: str) -> None:
    """Time against bits, one point a codec, with the spread of its times."""
    drawn, axes = _figure()
    for name, result in found.codecs.items():
        total, bits = result.spread(*TOTAL), result.bits["closed"].total
        error = [[total.median - total.low], [total.high - total.median]]
        axes.errorbar([bits], [total.median], yerr=error, fmt="o", capsize=3, label=name)
        axes.annotate(name, (bits, total.median), textcoords="offset points", xytext=(6, 6))
    axes.set_xlabel(_BITS)
    axes.set_ylabel("encode, guard, escape and recover, ns a coordinate")
    axes.set_yscale("log")
    axes.set_title(f"tau {found.setting.tolerance:g}, G {found.setting.grad_bound:g}, closed-form guard, one thread")
    drawn.savefig(path, format=kind)


def draw_sweep(points: Sequence[Point], text: str, path: Path, kind: str) -> None:
    """Bits at each value."""
    drawn, axes = _figure()
    axes.plot([point.value for point in points], [point.bits.total for point in points], "o-")
    axes.set_xlabel(text)
    axes.set_ylabel(_BITS)
    axes.set_ylim(bottom=0)
    drawn.savefig(path, format=kind)


def draw_choices(choices: Sequence[Choice], path: Path, kind: str) -> None:
    """Bits against tolerance, one line a bound."""
    drawn, axes = _figure()
    styles = cycle(("o-", "s--", "^:"))  # lines that lie on each other stay apart
    for bound in sorted({choice.grad_bound for choice in choices}):
        line = sorted((choice.tolerance, choice.bits) for choice in choices if choice.grad_bound == bound)
        axes.plot(*zip(*line, strict=True), next(styles), label=f"G = {bound:g}")
    axes.set_xscale("log")
    axes.set_xlabel("tolerance tau, in learning rates")
    axes.set_ylabel(_BITS)
    axes.set_ylim(bottom=0)
    axes.legend()
    drawn.savefig(path, format=kind)


def _figure() -> tuple[Any, Any]:
    drawn, axes = figure(*_SIZE)
    axes.grid(visible=True, alpha=0.3)
    return drawn, axes
