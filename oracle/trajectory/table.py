"""What was seen, as a table, as data and as a page; medians over the orders of the data, with the smallest and largest.

Claimed: nothing is said but what the runs gave; the page names how many there were.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from guarded_moments.oracle.trajectory.follow import Trajectory
from guarded_moments.oracle.trajectory.measure import Course
from guarded_moments.oracle.trajectory.variants import CONTROLS, NATIVE, OTHER_ORDER, RECOVERED
from guarded_moments.reference.claim import Claim

#: Updates that the tables show, besides the last.
SHOWN = (1, 2, 10, 50, 100)
#: The share of a run's updates, at its end, over which losses are averaged.
_END = 4
_LITTLE = 1e-12

_SEEN = """
The file claims: {claims}.  It claims nothing of: {left_out}.  Runs with gradients of their own, the first table, share
those of the first update and no others: no [horizon](horizon.md) covers more of them.  Where the native run's gradients
drive all, the second table, a longer horizon covers later updates, too.

What follows is no guarantee.  It is what was seen when one training ({what}) was resumed for {updates} updates,
{orders} times with other orders of its data, on {platform}.  Another model, another state of it or more updates may
show something else.
"""
_COLUMNS = """
*L2*: the distance of the parameters from those of the native run after the same updates, as a share of how far the
native run has moved since it was resumed.  *Largest*: of any parameter, in learning rates; what one ulp does to it in
the end says how little it tells there.  *Loss*: less the native run's on the same batches, mean over the last quarter.
Medians over the orders, and in brackets the smallest and largest.
"""
_OPEN = """
Here every update is driven by the gradient that drives the native one, as a claim has it for the updates of its
horizon.  A claim bounds each update; the distance here is what all of them so far add up to.  Each update of each
coordinate is on [another page](open-loop.md), with files of several horizons.
"""


def shown(found: Trajectory) -> list[int]:
    """The updates of the tables."""
    return [*(update for update in SHOWN if update < found.plan.updates), found.plan.updates]


def loss_difference(found: Trajectory, course: Course) -> float | None:
    """The loss less the native run's on the same batches, mean over the last quarter; None where the batches differ."""
    if course.variant == OTHER_ORDER:
        return None
    (native,) = [c for c in found.of(NATIVE, closed=True) if c.order == course.order]
    last = -(-found.plan.updates // _END)
    return statistics.fmean(mine - own for mine, own in zip(course.losses[-last:], native.losses[-last:], strict=True))


def rows(found: Trajectory, *, closed: bool) -> Iterator[list[str]]:
    """One for each variant: its name, relative L2 where it is shown, largest difference, difference of losses."""
    for name in found.variants:
        courses = found.of(name, closed=closed)
        if not courses:
            continue
        cells = [name]
        cells += [_spread([c.at(update).relative_l2 for c in courses]) for update in shown(found)]
        cells.append(_spread([c.at(1).largest for c in courses]))
        cells.append(_spread([c.at(found.plan.updates).largest for c in courses]))
        if closed:
            losses = [loss_difference(found, course) for course in courses]
            cells.append("other batches" if None in losses else _spread([loss for loss in losses if loss is not None]))
        yield cells


def header(found: Trajectory, *, closed: bool) -> list[str]:
    """The names of the columns."""
    names = ["resumed from", *(f"L2 at {update}" for update in shown(found))]
    names += ["largest at 1, lr", f"largest at {found.plan.updates}, lr"]
    return [*names, "loss, last quarter"] if closed else names


def _spread(values: Sequence[float]) -> str:
    """Median, and the smallest and largest where they differ."""
    middle = _figure(statistics.median(values))
    low, high = _figure(min(values)), _figure(max(values))
    return middle if low == high else f"{middle} ({low} to {high})"


def _figure(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if abs(value) >= _LITTLE else f"{value:.0e}"


def as_json(found: Trajectory) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "updates": found.plan.updates,
        "orders": list(found.plan.orders),
        "torch": str(torch.__version__),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "runs": [
            {
                "variant": course.variant,
                "order": course.order,
                "loop": "closed" if course.closed else "open",
                "points": [vars(point) for point in course.points],
                "losses": course.losses,
                "loss_difference": loss_difference(found, course) if course.closed else None,
            }
            for course in found.courses
        ],
    }


def page(found: Trajectory, *, command: str, claims: Sequence[Claim], what: str, picture: str | None = None) -> str:
    """The page of the documentation.

    Args:
        found: what was seen.
        command: that makes the page again.
        claims: of the file.
        what: the training, in words.
        picture: of the same, where the page finds it.
    """
    platform = f"torch {torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}, one thread"
    seen = {
        "claims": "; ".join(claim.sentence() for claim in claims),
        "left_out": "; ".join(dict.fromkeys(claim.not_claimed() for claim in claims)),
        "what": what,
        "updates": found.plan.updates,
        "orders": len(found.plan.orders),
        "platform": platform,
    }
    lines = [
        "# After the first update",
        "",
        "Generated, never edited.  This regenerates it, on a state that `make audit` trains:",
        "",
        f"    {command}",
        "",
        *(" ".join(text.format(**seen).split()) + "\n" for text in (*_SEEN.split("\n\n"), _COLUMNS)),
        *([f"![Distance from native over the updates]({picture})", ""] if picture else []),
        "## Each run with its own gradients",
        "",
        *_markdown(header(found, closed=True), rows(found, closed=True)),
        "",
        "## The native run's gradients for all",
        "",
        " ".join(_OPEN.split()),
        "",
        *_markdown(header(found, closed=False), rows(found, closed=False)),
        "",
        "## What the states are",
        "",
        f"- *{RECOVERED}*: what `gmc recover` gives.",
        *(f"- *{name}*: {text}." for name, text in CONTROLS.items() if name in found.variants),
    ]
    return "\n".join(lines) + "\n"


def _markdown(names: Sequence[str], cells: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|---|{'---:|' * (len(names) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in cells)
