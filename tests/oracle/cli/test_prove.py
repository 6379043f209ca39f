"""`gmc prove`: what it says of lemmas that hold, and of one that does not."""

from dataclasses import replace

import pytest
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.oracle.cli import prove
from guarded_moments.proofs import all_lemmas

NAME = "epsilon_keeps_error"


def test_lemmas_that_hold_are_counted_and_the_status_is_zero() -> None:
    ran = run_well("prove", "-k", "epsilon")

    names = [lemma.name for lemma in all_lemmas() if "epsilon" in lemma.name]
    assert len(names) > 1
    for name in names:
        (row,) = [line for line in ran.out.splitlines() if line.split()[0] == name]
        assert row.split()[1:6] == ["proved", "satisfiable", "refuted,", "checked", "exactly"]
    assert f"{len(names)} of {len(names)} established by z3 " in ran.out


@pytest.mark.parametrize(
    ("part", "text", "verdict"),
    [
        ("then", "abs((p + e) - (P + e)) <= kappa*(P - e)", "refuted"),
        ("given", ("0 < e", "e < 0", "0 <= kappa", "abs(p - P) <= kappa*P + a"), "VACUOUS"),
        ("twin", "abs((p + e) - (P + e)) <= kappa*(P + e) + a + e", "proved"),
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


def test_a_name_that_is_none_is_refused() -> None:
    ran = gmc("prove", "-k", "no such lemma")

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("gmc: no lemma's name contains 'no such lemma'")
    assert ran.err.count("\n") == 1
