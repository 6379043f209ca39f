"""Fair timing: jobs interleaved in rounds, medians, and every figure beside the copy bandwidth of the same run.

Seconds of this machine on this day mean little; ratios within one run mean something.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def interleaved(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds a call of each job, the median over rounds in which every job runs once; a first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in seconds.items()}


def copy_of(numel: int) -> Callable[[], object]:
    """A job that copies `numel` float32 values: what memory allows."""
    source, target = torch.zeros(numel), torch.empty(numel)
    return lambda: target.copy_(source)


def table(rows: Mapping[str, float], elements: int, what: str, base: str) -> str:
    """A Markdown table of ns and millions a second per element, and the ratio to the job named `base`."""
    lines = [f"| {what} | ns an element | million a second | ratio to {base} |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {1e9 * seconds / elements:.2f} | {elements / seconds / 1e6:.1f} | {seconds / rows[base]:.1f} |"
        for name, seconds in rows.items()
    ]
    return "\n".join(lines)
