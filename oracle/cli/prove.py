"""`gmc prove`: the theorem from its certificates, and every lemma put to the solvers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from guarded_moments.oracle.cli.common import out, watched
from guarded_moments.proofs import Lemma, ProofFileError, Question, Verdict, all_lemmas, check_certificates, smt2
from guarded_moments.proofs.check import LEMMA, CheckedClaim, count_by_kind
from guarded_moments.proofs.trusted_base import trusted_base

if TYPE_CHECKING:
    from guarded_moments.proofs import Outcome

_Item = TypeVar("_Item")


@click.command("prove")
@click.option("--trusted-base", "base", is_flag=True, help="Only print what is proved, from what, and what is not.")
@click.option(
    "-k", "--only", metavar="TEXT", default="", help="Put only lemmas whose name contains TEXT to the solvers."
)
@click.option(
    "--check-certificates", "certificates_only", is_flag=True, help="Only replay the proofs; import no solver."
)
@click.option("--smt2", "folder", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False), default=None,
              help="Also write every question as an SMT-LIB 2 file.")  # fmt: skip
def command(only: str, folder: Path | None, *, certificates_only: bool, base: bool) -> int:
    """Prove the theorem behind the guard from certificates, and have solvers prove each lemma again.

    The proof file is replayed by a small kernel that knows polynomials over the rationals and nothing else: the lemmas,
    and for every op model the theorem that the guard's bound holds, as the source of the guard itself states it.  That
    is what `--check-certificates` does, and it trusts no solver.

    Without it, z3 must also prove each lemma, find a point that satisfies its hypotheses, and find a counterexample to
    its failing twin, which is checked in exact arithmetic.  cvc5, where it is installed, is asked for each lemma too;
    a disagreement is an error.  "unknown" is never a pass.  Exit status 0 only if all claims are proved.
    """
    if base:
        click.echo(trusted_base(versions=True))
        return 0
    lemmas = [lemma for lemma in all_lemmas() if only in lemma.name]
    if not lemmas:
        raise click.UsageError(f"no lemma's name contains {only!r}")
    console = out()
    try:
        checked = list(_tracked(check_certificates(), "replaying the proofs", None))
    except ProofFileError as error:
        console.print(f"the proof file does not hold: {error}", markup=False)
        return 1
    failed = _report_certificates(console, checked)
    if certificates_only:
        return 1 if failed else 0
    if folder is not None:
        _write_questions(folder, lemmas)
    return 1 if _ask_solvers(console, lemmas, checked) or failed else 0


def _report_certificates(console: Console, checked: Sequence[CheckedClaim]) -> bool:
    """Say what the certificates prove, and whether anything is missing."""
    failed = [claim for claim in checked if claim.problem is not None]
    for claim in failed:
        console.print(f"{claim.name}: {claim.problem}", markup=False)
    counts = ", ".join(f"{number} {kind}" for kind, number in count_by_kind(checked).items())
    solvers = sorted({"z3", "cvc5"} & sys.modules.keys())
    console.print(
        f"{len(checked) - len(failed)} of {len(checked)} claims proved from certificates: {counts} "
        f"({'no solver' if not solvers else ', '.join(solvers)} loaded)"
    )
    return bool(failed)


def _ask_solvers(console: Console, lemmas: Sequence[Lemma], checked: Sequence[CheckedClaim]) -> bool:
    """Put the lemmas to z3 and cvc5; whether any is not established."""
    from guarded_moments.proofs import SOLVER, prove_all, second_solver  # noqa: PLC0415 - imports the solvers

    second = second_solver.is_installed()
    certified = {claim.name.removeprefix(LEMMA) for claim in checked if claim.problem is None}
    table = Table("lemma", "certificate", "goal", "cvc5", "hypotheses", "failing twin", box=None)
    table.add_column("steps", justify="right")
    problems: list[str] = []
    agreed = steps = established = 0
    for outcome in _tracked(prove_all(lemmas), f"proving {len(lemmas)} lemmas", len(lemmas)):
        found = [f"{outcome.lemma.name}: {problem}" for problem in outcome.problems]
        other = second_solver.ask_cvc5(outcome.lemma, Question.GOAL) if second else None
        if other is not None and Verdict.UNKNOWN not in {other, outcome.goal.verdict} and other != outcome.goal.verdict:
            found.append(
                f"{outcome.lemma.name}: the solvers disagree: {outcome.goal.verdict.value}, cvc5 {other.value}"
            )
        agreed += other is Verdict.PROVED
        steps += outcome.resources
        established += not found
        problems += found
        _add_row(table, outcome, "checked" if outcome.lemma.name in certified else "NONE", other)
    console.print(table)
    for problem in problems:
        console.print(problem, markup=False)
    console.print(f"{established} of {len(lemmas)} established by {SOLVER}, {steps:,} solver steps")
    if second:
        console.print(f"{agreed} of {len(lemmas)} proved by {second_solver.version()} as well, the rest unknown to it")
    else:
        console.print(
            "cvc5 is not installed, so no second solver was asked: pip install 'guarded-moments[cvc5]'", markup=False
        )
    return bool(problems)


def _add_row(table: Table, outcome: Outcome, certificate: str, other: Verdict | None) -> None:
    twin = f"{outcome.twin.verdict.value}{', checked exactly' if outcome.twin.checked else ''}"
    hypotheses = "satisfiable" if not outcome.vacuous else "VACUOUS or unknown"
    second = "not asked" if other is None else other.value
    row = (
        outcome.lemma.name,
        certificate,
        outcome.goal.verdict.value,
        second,
        hypotheses,
        twin,
        f"{outcome.resources:,}",
    )
    table.add_row(*row)


def _write_questions(folder: Path, lemmas: Iterable[Lemma]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for lemma in lemmas:
        for question in Question:
            path = folder / f"{lemma.name}.{question.name.lower()}.smt2"
            path.write_text(smt2(lemma, question), encoding="utf-8")


def _tracked(items: Iterable[_Item], description: str, total: int | None) -> Iterator[_Item]:
    return iter(
        track(
            items,
            description=description,
            total=total,
            console=Console(stderr=True),
            transient=True,
            disable=not watched(),
        )
    )
