"""Pictures of a benchmark and of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guarded_moments.oracle.benchmark.measure import Benchmark
from guarded_moments.oracle.benchmark.stages import TOTAL
from guarded_moments.oracle.benchmark.sweep import Point
from guarded_moments.oracle.pictures import figure

_SIZE = (7.0, 4.5)  #: width and height in inches


def draw_benchmark(found: Benchmark, path: Path, kind: str) -> None:
    """Time against bits, one point a codec, with the spread of its times."""
    drawn, axes = _figure()
    for name, result in found.codecs.items():
        total, bits = result.spread(*TOTAL), result.bits["closed"].total
        error = [[total.median - total.low], [total.high - total.median]]
        axes.errorbar([bits], [total.median], yerr=error, fmt="o", capsize=3, label=name)
        axes.annotate(name, (bits, total.median), textcoords="offset points", xytext=(6, 6))
    axes.set_xlabel("bits per coordinate, everything counted (native: 64)")
    axes.set_ylabel("encode, guard, escape and recover, ns a coordinate")
    axes.set_yscale("log")
    axes.set_title(f"tau {found.setting.tolerance:g}, G {found.setting.grad_bound:g}, closed-form guard, one thread")
    drawn.savefig(path, format=kind)


def draw_sweep(points: Sequence[Point], text: str, path: Path, kind: str) -> None:
    """Bits at each value."""
    drawn, axes = _figure()
    axes.plot([point.value for point in points], [point.bits.total for point in points], "o-")
    axes.set_xlabel(text)
    axes.set_ylabel("bits per coordinate, everything counted (native: 64)")
    axes.set_ylim(bottom=0)
    drawn.savefig(path, format=kind)


def _figure() -> tuple[Any, Any]:
    drawn, axes = figure(*_SIZE)
    axes.grid(visible=True, alpha=0.3)
    return drawn, axes
