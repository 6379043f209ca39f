"""Every lemma of the folder: proved, not vacuous, its twin refuted; and the folder as a whole."""

import dataclasses
import importlib
import pkgutil
import sys
from fractions import Fraction
from types import ModuleType, SimpleNamespace

import pytest

from guarded_moments.proofs import (
    RESULTS,
    Lemma,
    LemmaError,
    Outcome,
    Verdict,
    all_lemmas,
    examine,
    format_model,
    lemmas,
)
from guarded_moments.proofs.smt import Question
from guarded_moments.proofs.solvers import contradicts

LEMMAS = all_lemmas()


@pytest.fixture(scope="module", params=LEMMAS, ids=lambda lemma: lemma.name)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return examine(request.param)


def test_the_goal_is_proved(outcome: Outcome) -> None:
    goal = outcome.goal
    assert goal.verdict is Verdict.PROVED, f"{goal.reason or format_model(goal.model)}: {outcome.lemma.then}"


def test_the_hypotheses_can_hold(outcome: Outcome) -> None:
    assert outcome.hypotheses.verdict is Verdict.REFUTED, f"vacuous or unknown: {outcome.lemma.given}"


def test_the_twin_fails_at_a_point_that_needs_no_solver(outcome: Outcome) -> None:
    twin = outcome.twin
    assert twin.verdict is Verdict.REFUTED, f"{twin.verdict.value} {twin.reason}: {outcome.lemma.twin}"
    assert twin.model is not None
    point = {name: value for name, value in twin.model.items() if isinstance(value, Fraction)}
    assert contradicts(outcome.lemma, Question.TWIN, point), format_model(twin.model)
    assert not contradicts(outcome.lemma, Question.GOAL, point), f"false at {format_model(twin.model)}"


def test_it_is_established_with_steps_to_spare(outcome: Outcome) -> None:
    assert outcome.established, outcome.problems
    most = max(answer.resources for answer in (outcome.goal, outcome.hypotheses, outcome.twin))
    assert most < outcome.lemma.resource_limit / 4, f"{most} steps: a new solver version may need more"


@pytest.mark.parametrize("lemma", LEMMAS, ids=lambda lemma: lemma.name)
def test_the_docstring_opens_with_the_statement_and_explains_the_twin(lemma: Lemma) -> None:
    documentation = importlib.import_module(f"{lemmas.__name__}.{lemma.name}").__doc__
    assert documentation is not None
    assert documentation.splitlines()[0] == lemma.statement
    assert "\n    " in documentation, "the claim in mathematics is missing"
    assert "\nThe twin fails: " in documentation


def test_every_result_rests_on_a_lemma() -> None:
    needed = {user for lemma in LEMMAS for user in lemma.needed_by}
    assert RESULTS.keys() <= needed


def test_lemmas_are_sorted_and_complete() -> None:
    names = [lemma.name for lemma in LEMMAS]
    assert names == sorted(set(names))
    assert "reciprocal_gap_decreases" in names


SAMPLE = LEMMAS[0]


def renamed(name: str, *needed_by: str) -> Lemma:
    return dataclasses.replace(SAMPLE, name=name, needed_by=needed_by)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([renamed("a", "exact_guard")] * 2, "two things are called 'a'"),
        ([renamed("exact_guard", "rounding_slack")], "two things are called 'exact_guard'"),
        ([renamed("a", "nowhere")], "needed by 'nowhere', which does not exist"),
        ([renamed("a", "a")], "'a' is needed by 'a', which it needs"),
        ([renamed("a", "b"), renamed("b", "c"), renamed("c", "a")], "'a' is needed by 'b', which it needs"),
    ],
    ids=["name twice", "name of a result", "unknown user", "itself", "circle"],
)
def test_lemmas_that_do_not_fit_together_are_refused(given: list[Lemma], reason: str) -> None:
    with pytest.raises(LemmaError, match=reason):
        lemmas.fit_together(given)


def test_lemmas_that_fit_are_sorted() -> None:
    given = [renamed("b", "exact_guard"), renamed("a", "b")]
    assert [lemma.name for lemma in lemmas.fit_together(given)] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [({}, "defines no LEMMA"), ({"LEMMA": SAMPLE}, f"another name: '{SAMPLE.name}'")],
    ids=["no lemma", "another name"],
)
def test_a_file_without_its_lemma_is_refused(
    monkeypatch: pytest.MonkeyPatch, content: dict[str, Lemma], reason: str
) -> None:
    module = ModuleType(f"{lemmas.__name__}.stranger")
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(pkgutil, "iter_modules", lambda _: [SimpleNamespace(name="stranger")])
    with pytest.raises(LemmaError, match=reason):
        all_lemmas()
