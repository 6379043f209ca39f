"""`gmc prove`: every lemma, its hypotheses and its failing twin, by z3."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from guarded_moments.oracle.cli.common import out
from guarded_moments.proofs import SOLVER, Outcome, all_lemmas, prove_all


@click.command("prove")
@click.option("-k", "--only", metavar="TEXT", default="", help="Only lemmas whose name contains TEXT.")
def command(only: str) -> int:
    """Prove the lemmas behind the guard, and show that each is not vacuous.

    For each lemma z3 must prove the goal, find a point that satisfies the hypotheses, and find a counterexample to its
    failing twin, which is then checked in exact rational arithmetic.  "unknown" is never a pass.  Exit status 0 only if
    every lemma is established.  The lemmas are chained on paper so far, not by a program.
    """
    lemmas = [lemma for lemma in all_lemmas() if only in lemma.name]
    if not lemmas:
        raise click.UsageError(f"no lemma's name contains {only!r}")
    outcomes = list(
        track(
            prove_all(lemmas),
            description=f"proving {len(lemmas)} lemmas",
            total=len(lemmas),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
    )
    console = out()
    console.print(_table(outcomes))
    failed = [outcome for outcome in outcomes if not outcome.established]
    for outcome in failed:
        for problem in outcome.problems:
            console.print(f"{outcome.lemma.name}: {problem}")
    steps = sum(outcome.resources for outcome in outcomes)
    console.print(f"{len(outcomes) - len(failed)} of {len(outcomes)} established by {SOLVER}, {steps:,} solver steps")
    return 1 if failed else 0


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("lemma", "goal", "hypotheses", "failing twin", box=None)
    table.add_column("steps", justify="right")
    for outcome in outcomes:
        twin = f"{outcome.twin.verdict.value}{', checked exactly' if outcome.twin.checked else ''}"
        hypotheses = "satisfiable" if not outcome.vacuous else "VACUOUS or unknown"
        table.add_row(outcome.lemma.name, outcome.goal.verdict.value, hypotheses, twin, f"{outcome.resources:,}")
    return table
