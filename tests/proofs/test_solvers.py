"""The harness: it must tell true from false, and never take "unknown" for either."""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_moments.proofs import (
    AlgebraicNumber,
    Lemma,
    Question,
    Verdict,
    ask,
    examine,
    format_model,
    prove_all,
    smt2,
    solvers,
)

SOUND = Lemma(
    name="square_grows",
    statement="The square of a number above one is at least the number.",
    variables={"x": "a number [1]"},
    given=("1 <= x",),
    then="x <= x*x",
    twin="1.01*x <= x*x",
    needed_by=("nothing_else",),
)
FALSE = dataclasses.replace(SOUND, given=("1/2 <= x",))
VACUOUS = dataclasses.replace(SOUND, given=("1 <= x", "x*x < 1"))


def test_a_true_lemma_is_established() -> None:
    outcome = examine(SOUND)
    assert outcome.established, outcome.problems
    assert outcome.goal.verdict is Verdict.PROVED
    assert outcome.goal.model is None
    assert outcome.hypotheses.verdict is outcome.twin.verdict is Verdict.REFUTED
    assert outcome.hypotheses.checked
    assert outcome.twin.checked
    assert 0 < outcome.resources < 3 * SOUND.resource_limit
    assert outcome.solver.startswith("z3 ")


def test_a_false_lemma_is_refuted_at_a_point_that_needs_no_solver() -> None:
    outcome = examine(FALSE)
    assert not outcome.established
    assert outcome.goal.verdict is Verdict.REFUTED
    assert outcome.goal.checked
    assert outcome.goal.model is not None
    x = outcome.goal.model["x"]
    assert isinstance(x, Fraction)
    assert x >= Fraction(1, 2)
    assert x > x * x
    assert outcome.problems == (f"false at x = {x}",)


def test_a_limit_that_is_too_small_gives_unknown_and_no_pass() -> None:
    hard = Lemma(
        name="cubic_mean",
        statement="The arithmetic mean of three numbers is at least their geometric mean.",
        variables={"a": "a number [1]", "b": "another [1]", "c": "another [1]"},
        given=("0 <= a", "0 <= b", "0 <= c"),
        then="27*a*b*c <= (a + b + c)**3",
        twin="27.01*a*b*c <= (a + b + c)**3",
        needed_by=("nothing_else",),
        resource_limit=50,
    )
    outcome = examine(hard)
    assert outcome.goal.verdict is Verdict.UNKNOWN
    assert "resource" in outcome.goal.reason
    assert outcome.goal.resources > 0
    assert not outcome.established
    assert any(problem.startswith("unknown whether the lemma is false") for problem in outcome.problems)
    assert examine(dataclasses.replace(hard, resource_limit=1_000_000)).established


def test_a_vacuous_lemma_is_not_established_although_it_is_proved() -> None:
    outcome = examine(VACUOUS)
    assert outcome.goal.verdict is Verdict.PROVED
    assert outcome.vacuous
    assert outcome.problems == ("vacuous: no point satisfies the hypotheses",)


def test_a_twin_that_holds_is_a_problem() -> None:
    outcome = examine(dataclasses.replace(SOUND, twin="x <= 2*x*x"))
    assert not outcome.vacuous
    assert not outcome.established
    assert any("the twin holds as well" in problem for problem in outcome.problems)


def test_a_twin_refuted_at_an_irrational_point_only_is_a_problem() -> None:
    lemma = dataclasses.replace(SOUND, given=("x*x == 2", "0 < x"), then="x <= 2", twin="x <= 1")
    outcome = examine(lemma)
    assert outcome.goal.verdict is Verdict.PROVED
    assert outcome.twin.verdict is Verdict.REFUTED
    assert not outcome.twin.checked
    assert outcome.twin.model is not None
    root = outcome.twin.model["x"]
    assert isinstance(root, AlgebraicNumber)
    assert root.decimal.startswith("1.4142135623")
    assert "(algebraic)" in format_model(outcome.twin.model)
    assert len(outcome.problems) == 1
    assert "not checked" in outcome.problems[0]


def test_a_wrong_model_of_the_solver_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_model", lambda *_: {"x": Fraction(3)})
    answer = ask(FALSE, Question.GOAL)
    assert answer.verdict is Verdict.UNKNOWN
    assert not answer.checked
    assert "fails the exact check: x = 3" in answer.reason
    assert not examine(FALSE).established


def test_the_number_of_steps_does_not_depend_on_what_ran_before() -> None:
    first = examine(SOUND)
    examine(FALSE)
    assert examine(SOUND) == first


def test_outcomes_come_one_at_a_time() -> None:
    asked = []

    def lemmas() -> Iterator[Lemma]:
        for lemma in (SOUND, FALSE):
            asked.append(lemma)
            yield lemma

    outcomes = prove_all(lemmas())
    assert next(outcomes).lemma is SOUND
    assert asked == [SOUND]
    assert [outcome.established for outcome in outcomes] == [False]


def test_the_text_for_a_solver_is_complete() -> None:
    assert smt2(FALSE, Question.TWIN).splitlines() == [
        "; square_grows: The square of a number above one is at least the number.",
        "; a model shows that the twin is false",
        "(set-logic QF_NRA)",
        "(set-info :status sat)",
        "(declare-const x Real) ; a number [1]",
        "(assert (>= (+ (- (/ 1.0 2.0)) x) 0.0))",
        "(assert (not (>= (+ (* (- (/ 101.0 100.0)) x) (* x x)) 0.0)))",
        "(check-sat)",
    ]
    assert "(set-info :status unsat)" in smt2(SOUND)
    assert "not" not in smt2(SOUND, Question.HYPOTHESES)


RATIONALS = st.fractions(min_value=-4, max_value=4, max_denominator=4)
CLAIMS = st.sampled_from(
    (
        "abs(x - y/3) <= 1.5*x*y and x <= y + 1",
        "x*x*y - 2 < y**3 <= 8",
        "x - x == 0",
        "4*x*y == 1",
        "(x + y)**2 >= -x",
    )
)


@settings(max_examples=40, deadline=None)
@given(RATIONALS, RATIONALS, CLAIMS)
def test_the_solver_reads_the_text_as_python_reads_the_claim(x: Fraction, y: Fraction, claim: str) -> None:
    lemma = Lemma(
        name="claim_at_a_point",
        statement="At this point, the claim.",
        variables={"x": "a number [1]", "y": "another [1]"},
        given=(f"x == {x}", f"y == {y}"),
        then=claim,
        twin="x > x",
        needed_by=("nothing_else",),
    )
    holds = all(atom.holds({"x": x, "y": y}) for atom in lemma.goal)
    assert ask(lemma, Question.GOAL).verdict is (Verdict.PROVED if holds else Verdict.REFUTED)
