"""Every coordinate's updates under the gradients of a real training, which drive native and recovered states alike.

Run: make open-loop.  Two optimizers of torch stand beside the training, one from the native state and one from the
recovered; both are given the training's own gradients, at parameters that are zero before each step, so that a step
leaves the bare update in them.  Every coordinate is compared at every update.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from guarded_moments.oracle.named_objects import attribute_at
from guarded_moments.reference import compress, load_state_dict, recover
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.implementations import platform_description
from guarded_moments.reference.platform import one_torch_thread
from trained_state import checkpoint_option

HORIZONS = (Horizon.FIRST, Horizon(10), Horizon(100), Horizon.ALL)
SHOWN = (1, 2, 3, 5, 10, 20, 50, 100, 200, 300)
_TRAINING = "examples/train_language_model.py:resume"

_PAGE = """\
# Updates under shared gradients

Generated, never edited. This regenerates it, on a state that `make audit` trains:

    make open-loop

{platform}, one thread.

The training of `{training}` was resumed for {updates} updates. Its gradients drove
optimizers of torch beside it, one from the native state and one from what each file recovers, `tau` {tolerance:g}, `G`
infinite. The largest deviation of any of {coordinates:,} coordinates, in learning rates, for files of each
[horizon](horizon.md); in brackets how many coordinates deviate by more than `tau` there.
"""


class Seen(NamedTuple):
    """Of one horizon and one update."""

    largest: float  #: in learning rates
    beyond: int  #: coordinates that deviate by more than the tolerance


class _Beside:
    """An optimizer whose parameters are zero before each step."""

    def __init__(self, like: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        groups = [
            {"params": [torch.zeros_like(parameter) for parameter in group["params"]]} for group in like.param_groups
        ]
        self._optimizer = torch.optim.AdamW(groups)
        self._optimizer.load_state_dict(copy.deepcopy(state))
        for group in self._optimizer.param_groups:
            group["weight_decay"] = 0.0

    def updates(self, like: torch.optim.Optimizer) -> list[torch.Tensor]:
        """What one step with the gradients of another optimizer's parameters adds."""
        found = []
        for own, other in zip(self._optimizer.param_groups, like.param_groups, strict=True):
            for parameter, driven in zip(own["params"], other["params"], strict=True):
                parameter.zero_()
                parameter.grad = driven.grad
                found.append(parameter)
        self._optimizer.step()
        return found

    @property
    def lr(self) -> float:
        """Of all groups."""
        (rate,) = {float(group["lr"]) for group in self._optimizer.param_groups}
        return rate


@click.command()
@checkpoint_option
@click.option("--updates", type=click.IntRange(1), default=300, show_default=True, help="Updates to follow.")
@click.option("--tolerance", type=float, default=0.01, show_default=True, help="Of all files, in learning rates.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the page there; by default it is printed.")
def main(checkpoint: Path, updates: int, tolerance: float, output: Path | None) -> None:
    """Follow a real training's gradients from native and recovered states, open loop, on every coordinate."""
    native = load_state_dict(checkpoint)
    states = [compress(native, tolerance=tolerance, grad_bound=float("inf"), horizon=horizon) for horizon in HORIZONS]
    resume: Any = attribute_at(_TRAINING, [Path.cwd()])
    run = resume(checkpoint, 0)
    run.optimizer.load_state_dict(copy.deepcopy(native))
    with one_torch_thread(), torch.no_grad():
        of_native = _Beside(run.optimizer, native)
        of_recovered = [_Beside(run.optimizer, recover(state)) for state in states]
        rows: list[list[Seen]] = []
        for update in range(updates):
            with torch.enable_grad():
                run.gradients(update)
            own = of_native.updates(run.optimizer)
            rows.append([_seen(own, one.updates(run.optimizer), one.lr, tolerance) for one in of_recovered])
            run.optimizer.step()
            if update % 10 == 0:
                click.echo(f"\r{update} of {updates} updates", err=True, nl=False)
    text = page(rows, tolerance, states[0].coordinates)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text, encoding="utf-8")
    for place, horizon in enumerate(HORIZONS):
        last = min(updates, horizon.updates or updates)
        worst = max(range(last), key=lambda update: rows[update][place].largest)
        if rows[worst][place].beyond:
            raise click.ClickException(
                f"horizon {horizon}: update {worst + 1} deviates by {rows[worst][place].largest} lr"
            )


def _seen(native: Sequence[torch.Tensor], recovered: Sequence[torch.Tensor], lr: float, tolerance: float) -> Seen:
    largest, beyond = 0.0, 0
    for one, other in zip(native, recovered, strict=True):
        deviation = (other.double() - one.double()).abs()
        largest = max(largest, float(deviation.max()))
        beyond += int((deviation > tolerance * lr).sum())
    return Seen(largest / lr, beyond)


def page(rows: Sequence[Sequence[Seen]], tolerance: float, coordinates: int) -> str:
    """The page of the documentation."""
    updates = len(rows)
    lines = [
        _PAGE.format(
            platform=platform_description(),
            training=_TRAINING,
            updates=updates,
            tolerance=tolerance,
            coordinates=coordinates,
        ),
        f"| update | {' | '.join(f'horizon {horizon}' for horizon in HORIZONS)} |",
        f"|---|{'---:|' * len(HORIZONS)}",
    ]
    for update in SHOWN:
        if update <= updates:
            cells = (f"{seen.largest:.5f} ({seen.beyond:,})" for seen in rows[update - 1])
            lines.append(f"| {update} | {' | '.join(cells)} |")
    largest = []
    for place in range(len(HORIZONS)):
        worst = max(range(updates), key=lambda update: rows[update][place].largest)
        largest.append(f"{rows[worst][place].largest:.5f} at {worst + 1} ({rows[worst][place].beyond:,})")
    lines.append(f"| **largest** | {' | '.join(largest)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
