"""What it costs to decide coordinates for every gradient: compiled, in torch, by enumeration, certified.

Run: make bench.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import torch

from guarded_moments.oracle.exhaustive import CompiledTrajectories, Coordinate
from guarded_moments.oracle.intervals import Numbers
from guarded_moments.oracle.intervals import enclose as enclose_certified
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Certainty, Verdict, decide
from guarded_moments.oracle.worst_case.enclosure import enclose as enclose_compiled
from guarded_moments.oracle.worst_case.supremum import worst_cases
from guarded_moments.reference import Claim, GradientBound, Log8, Tolerance
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.checkpoint.encoding import constants_of, scalars_of
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order
from guarded_moments.reference.guard import GuardConstants, closed_form_guard
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.exact import exact_guard, search
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.implementations import implementation_for, platform_description
from guarded_moments.reference.op_models import OpModel
from timing import interleaved, table
from trained_state import checkpoint_option, largest_parameter

_GRADIENTS = 1 << 24
_EXACTLY = 256  #: coordinates whose exact supremum is found
_CERTIFIED = 16  #: coordinates enclosed by the interval oracle


@click.command()
@checkpoint_option
@click.option("--coordinates", default=1 << 16, show_default=True, help="Coordinates taken of its largest tensor.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; medians are taken over them.")
def main(checkpoint: Path, coordinates: int, rounds: int) -> None:
    """Time the searches on one thread, at the checkpoint's step and at step 100,000, where more are hard."""
    torch.set_num_threads(1)
    trained = largest_parameter(checkpoint)
    implementation = implementation_for(trained.param_group)
    claim = Claim(Tolerance(0.01), GradientBound(1.0), implementation.name)
    print(f"{platform_description()}, one thread, medians of {rounds} rounds, tau 0.01, G 1")  # noqa: T201 - its output
    for step in (trained.next_step, 100_000.0):
        parameter = replace(trained, next_step=step)
        lr = parameter.hyperparameters.lr
        constants = constants_of(parameter, claim, implementation, lr)
        options, scalars = parameter.hyperparameters.options, scalars_of(parameter, implementation, lr)
        m, v = (in_memory_order(moment)[:coordinates] for moment in (parameter.m, parameter.v))
        codec = Log8.fit(m, v, lambda *states: closed_form_guard(constants, *states))  # noqa: B023 - used at once
        states = States(m, v, *codec.decode(*codec.encode(m, v)))
        trajectories = Trajectories(implementation.body, options, scalars)
        jobs = {
            "closed form, torch": lambda: closed_form_guard(constants, *states),  # noqa: B023 - run in this turn
            "real search, compiled": lambda: search(constants, states),  # noqa: B023 - as above
            "decision in the op model, torch": lambda: decide(constants, trajectories, states),  # noqa: B023 - as above
            "enclosure to 1e-4, torch": lambda: enclose(constants, states),  # noqa: B023 - as above
            "enclosure to 1e-4, compiled": lambda: enclose_compiled(constants, states),  # noqa: B023 - as above
        }
        print(f"\nat step {step:,.0f}, {len(m):,} coordinates\n")  # noqa: T201 - as above
        print(table(interleaved(jobs, rounds), len(m), "of each coordinate", "closed form, torch"))  # noqa: T201 - as above
        compiled = CompiledTrajectories(implementation.body, options, scalars)
        few = states.select(torch.randperm(len(m), generator=torch.Generator().manual_seed(0))[:_EXACTLY])
        found = worst_cases(constants, compiled, few)
        exact = {"exact supremum, compiled": lambda: worst_cases(constants, compiled, few)}  # noqa: B023 - as above
        print("\n" + table(interleaved(exact, 1), len(few.m), "of each coordinate", "exact supremum, compiled"))  # noqa: T201 - as above
        known = int((found.certainty == Certainty.EXACT).sum())
        print(f"{known} of {len(few.m)} exact; {int(found.enumerated.median()):,} gradients each, in the median")  # noqa: T201 - as above
        certified = _certified(implementation.body, options, scalars, few, constants.gradient_bound)
        base = f"certified enclosure to 1 %, {Numbers.ARB.value}"
        print("\n" + table(interleaved(certified, rounds), _CERTIFIED, "of each coordinate", base))  # noqa: T201 - as above
        one = Coordinate(*(float(moment[0]) for moment in states))
        enumeration = {"every gradient, compiled": lambda: compiled.worst(one, 0x3A000000, _GRADIENTS)}  # noqa: B023 - as above
        print(_tightness(constants, trajectories, states))  # noqa: T201 - as above
        print("\n" + table(interleaved(enumeration, 1), _GRADIENTS, "of each gradient", "every gradient, compiled"))  # noqa: T201 - as above


def _certified(
    model: OpModel, options: StepOptions, scalars: Scalars[float], states: States, gradient_bound: float
) -> dict[str, Callable[[], object]]:
    """Enclosures of the same few coordinates by intervals of either numbers."""
    coordinates = [Coordinate(*(float(moment[i]) for moment in states)) for i in range(_CERTIFIED)]

    def job(numbers: Numbers) -> Callable[[], object]:
        return lambda: [
            enclose_certified(model, options, scalars, *coordinate, gradient_bound, relative_gap=0.01, numbers=numbers)
            for coordinate in coordinates
        ]

    return {f"certified enclosure to 1 %, {numbers.value}": job(numbers) for numbers in Numbers}


def _tightness(constants: GuardConstants[float], trajectories: Trajectories, states: States) -> str:
    """How many of the coordinates that are safe each guard accepts, and whether it accepts others."""
    verdict = decide(constants, trajectories, states).verdict
    safe, unsafe = verdict == Verdict.SAFE, verdict == Verdict.UNSAFE
    lines = [f"\n{int(safe.sum()):,} coordinates are safe, {int(unsafe.sum()):,} are not, the rest is undecided"]
    for name, guard in (("closed form", closed_form_guard), ("exact guard", exact_guard)):
        accepted = guard(constants, *states)
        share, wrong = float((accepted & safe).sum() / safe.sum()), int((accepted & unsafe).sum())
        lines.append(f"{name}: accepts {100 * share:.4f} % of the safe ones, and {wrong} of the others")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
