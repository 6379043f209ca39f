"""`gmc prove`: what it says of lemmas that hold, of one that does not, and of certificates."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.oracle.cli import prove
from guarded_moments.proofs import CheckedClaim, ProofFileError, Verdict, all_lemmas, second_solver
from guarded_moments.proofs.statement import families

NAME = "gap_on_cell"


@pytest.fixture
def one_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay of the proof file has tests of its own."""
    monkeypatch.setattr(prove, "check_certificates", lambda: iter([CheckedClaim(f"lemma/{NAME}", "")]))


def test_certificates_alone_are_replayed_and_counted() -> None:
    ran = run_well("prove", "--check-certificates")

    lemmas, models = len(all_lemmas()), len(families())
    (counted,) = re.findall(r"^(\d+) of \1 claims proved from certificates: (.*) \(", ran.out, re.MULTILINE)
    kinds = {kind: int(number) for number, kind in re.findall(r"(\d+) ([^,]+)", counted[1])}
    assert sum(kinds.values()) == int(counted[0])
    assert kinds["lemmas"] == lemmas
    of_every_model = [kind for kind, number in kinds.items() if number == models]
    assert {"theorems of a dropped cell", "theorems of an inexact start"} <= set(of_every_model)


@pytest.mark.usefixtures("one_certificate")
def test_lemmas_that_hold_are_counted_and_the_status_is_zero(tmp_path: Path) -> None:
    ran = run_well("prove", "-k", "cell", "--smt2", str(tmp_path / "questions"))

    names = [lemma.name for lemma in all_lemmas() if "cell" in lemma.name]
    assert len(names) > 1
    for name in names:
        (row,) = [line for line in ran.out.splitlines() if line.split()[:1] == [name]]
        certificate, goal, second, *rest = row.replace("not asked", "not-asked").split()[1:]
        assert certificate == ("checked" if name == NAME else "NONE")
        assert goal == "proved"
        assert second in ({"proved", "unknown"} if second_solver.is_installed() else {"not-asked"})
        assert rest[:4] == ["satisfiable", "refuted,", "checked", "exactly"]
        assert (tmp_path / "questions" / f"{name}.goal.smt2").read_text().count("(check-sat)") == 1
    assert f"{len(names)} of {len(names)} established by z3 " in ran.out


@pytest.mark.usefixtures("one_certificate")
@pytest.mark.parametrize(
    ("part", "text", "verdict"),
    [
        ("then", "abs(M*D) <= 0.5*K*D0", "refuted"),
        ("given", ("abs(M) <= K", "0 <= D <= D0", "D0 < 0"), "VACUOUS"),
        ("twin", "abs(M*D) <= K*D0 + 0.5*D0*D0", "proved"),
    ],
    ids=["a false goal", "hypotheses that cannot hold", "a twin that holds"],
)
def test_a_lemma_that_says_something_else_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, part: str, text: object, verdict: str
) -> None:
    lemma = next(lemma for lemma in all_lemmas() if lemma.name == NAME)
    wrong = replace(lemma, **{part: text})  # type: ignore[arg-type]
    monkeypatch.setattr(prove, "all_lemmas", lambda: [wrong])

    ran = gmc("prove")

    assert ran.status == 1
    assert verdict in ran.out
    assert f"\n{NAME}: " in ran.out
    assert "0 of 1 established" in ran.out
    assert ran.err == ""


@pytest.mark.usefixtures("one_certificate")
def test_solvers_that_disagree_fail_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_solver, "is_installed", lambda: True)
    monkeypatch.setattr(second_solver, "version", lambda: "another solver")
    monkeypatch.setattr(second_solver, "ask_cvc5", lambda *_: Verdict.REFUTED)

    ran = gmc("prove", "-k", NAME)

    assert ran.status == 1
    assert f"{NAME}: the solvers disagree: proved, cvc5 refuted" in ran.out


@pytest.mark.usefixtures("one_certificate")
def test_what_the_second_solver_does_not_know_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_solver, "is_installed", lambda: True)
    monkeypatch.setattr(second_solver, "version", lambda: "another solver")
    monkeypatch.setattr(second_solver, "ask_cvc5", lambda *_: Verdict.UNKNOWN)

    assert "0 of 1 proved by another solver as well" in run_well("prove", "-k", NAME).out


def test_a_claim_without_a_proof_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [CheckedClaim("lemma/one", ""), CheckedClaim("lemma/two", "", "the file has no proof of it")]
    monkeypatch.setattr(prove, "check_certificates", lambda: iter(claims))

    ran = gmc("prove", "--check-certificates")

    assert ran.status == 1
    assert ran.out.startswith("lemma/two: the file has no proof of it\n1 of 2 claims proved")


def test_a_proof_file_that_is_wrong_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ProofFileError("step 3: the terms do not cancel")

    monkeypatch.setattr(prove, "check_certificates", refuse)

    ran = gmc("prove", "--check-certificates")

    assert ran.status == 1
    assert ran.out == "the proof file does not hold: step 3: the terms do not cancel\n"


def test_a_name_that_is_none_is_refused() -> None:
    ran = gmc("prove", "-k", "no such lemma")

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("gmc: no lemma's name contains 'no such lemma'")
    assert ran.err.count("\n") == 1
