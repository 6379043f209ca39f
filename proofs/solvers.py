"""The solver harness: puts the three questions about a lemma to z3 and judges the answers.

Claimed, of an `Outcome` that is `established`: z3 proved that no point satisfies the hypotheses and not the
goal; and a point is known that satisfies the hypotheses and not the twin, so the hypotheses can hold and the
goal has content.  The point is not taken on trust: it is put into the parsed claims again, with `Fraction`.

Trusted, for ``PROVED`` only: z3.  Nothing here counts seconds: the limit is in solver steps, so a verdict
does not depend on the machine or its load, and ``UNKNOWN`` is a verdict of its own that is never a pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import z3

from guarded_moments.proofs.lemma import Lemma
from guarded_moments.proofs.polynomials import Point
from guarded_moments.proofs.smt import Question, goal_asked, smt2
from guarded_moments.proofs.verdicts import Verdict

#: The solver that gave the verdicts, for reports.
SOLVER: Final = f"z3 {z3.get_version_string()}"


@dataclass(frozen=True, slots=True)
class AlgebraicNumber:
    """An irrational coordinate of a model.

    Attributes:
        definition: the number exactly, as the solver's ``root-obj`` term.
        decimal: its first digits.
    """

    definition: str
    decimal: str

    def __str__(self) -> str:
        """The first digits, marked as not exact."""
        return f"{self.decimal} (algebraic)"


#: The coordinates of a point that a solver found.
Model: TypeAlias = Mapping[str, Fraction | AlgebraicNumber]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question about a lemma.

    Attributes:
        question: what was asked.
        verdict: ``REFUTED`` if a point answers the question, ``PROVED`` if there is none.
        model: the point, if one was found.
        checked: whether the point was confirmed in exact arithmetic, without the solver.
        resources: the solver steps taken.
        reason: why the verdict is ``UNKNOWN``, else empty.
    """

    question: Question
    verdict: Verdict
    model: Model | None = None
    checked: bool = False
    resources: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found out about a lemma.

    Attributes:
        lemma: the lemma.
        goal: whether the hypotheses imply the goal.
        hypotheses: whether the hypotheses can hold.
        twin: whether the hypotheses imply the twin.
        solver: the solver with its version.
    """

    lemma: Lemma
    goal: Answer
    hypotheses: Answer
    twin: Answer
    solver: str

    @property
    def established(self) -> bool:
        """Whether the lemma is proved, not vacuous, and its twin fails."""
        return not self.problems

    @property
    def vacuous(self) -> bool:
        """Whether the hypotheses contradict each other, so that they imply everything."""
        return self.hypotheses.verdict is Verdict.PROVED

    @property
    def resources(self) -> int:
        """The solver steps taken for all three questions."""
        return self.goal.resources + self.hypotheses.resources + self.twin.resources

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that keeps the lemma from being established, one line each."""
        found = []
        if self.vacuous:
            found.append("vacuous: no point satisfies the hypotheses")
        if self.goal.verdict is Verdict.REFUTED:
            found.append(f"false at {format_model(self.goal.model)}")
        if self.twin.verdict is Verdict.PROVED and not self.vacuous:
            found.append("the twin holds as well: choose a stronger one, or sharpen the lemma")
        found.extend(
            f"unknown whether {answer.question.value}: {answer.reason}"
            for answer in (self.goal, self.hypotheses, self.twin)
            if answer.verdict is Verdict.UNKNOWN
        )
        if self.twin.verdict is Verdict.REFUTED and not self.twin.checked:
            found.append(f"the twin's point is irrational, so not checked: {format_model(self.twin.model)}")
        return tuple(found)


def format_model(model: Model | None) -> str:
    """A point as ``name = value`` pairs."""
    return ", ".join(f"{name} = {value}" for name, value in (model or {}).items())


def contradicts(lemma: Lemma, question: Question, point: Point) -> bool:
    """Whether the hypotheses hold and the goal in question fails at a point, decided exactly."""
    goal = goal_asked(lemma, question)
    return all(atom.holds(point) for atom in lemma.hypotheses) and not (
        goal is not None and all(atom.holds(point) for atom in goal)
    )


def ask(lemma: Lemma, question: Question) -> Answer:
    """Put one question about a lemma to z3.

    Args:
        lemma: the lemma; its resource limit bounds the query.
        question: what to ask.

    Returns:
        The answer.  A rational point that does not survive the exact check gives ``UNKNOWN``.
    """
    # A context of its own makes the step count, and with it the verdict, independent of what ran before.
    context = z3.Context()
    solver = z3.SolverFor("QF_NRA", ctx=context)
    solver.set("rlimit", lemma.resource_limit)
    solver.from_string(smt2(lemma, question))
    result = solver.check()
    resources = _steps(solver)
    if result == z3.unsat:
        return Answer(question, Verdict.PROVED, resources=resources)
    if result != z3.sat:
        reason = str(solver.reason_unknown())
        return Answer(question, Verdict.UNKNOWN, resources=resources, reason=reason)
    model = _model(solver.model(), lemma, context)
    point = {name: value for name, value in model.items() if isinstance(value, Fraction)}
    checked = len(point) == len(model)
    if checked and not contradicts(lemma, question, point):
        reason = f"the solver's model fails the exact check: {format_model(model)}"
        return Answer(question, Verdict.UNKNOWN, model, resources=resources, reason=reason)
    return Answer(question, Verdict.REFUTED, model, checked, resources)


def examine(lemma: Lemma) -> Outcome:
    """Put all three questions about a lemma to z3.

    Args:
        lemma: the lemma.

    Returns:
        The three answers; the lemma holds only if the outcome is `established`.
    """
    return Outcome(
        lemma=lemma,
        goal=ask(lemma, Question.GOAL),
        hypotheses=ask(lemma, Question.HYPOTHESES),
        twin=ask(lemma, Question.TWIN),
        solver=SOLVER,
    )


# z3 is published without types: its objects are `Any`, here and in `ask`, and nowhere else.


def _steps(solver: Any) -> int:  # noqa: ANN401
    """The solver steps taken so far."""
    return int(solver.statistics().get_key_value("rlimit count"))


def _model(found: Any, lemma: Lemma, context: Any) -> Model:  # noqa: ANN401
    """The point that z3 found; a variable that it left free gets a value too."""
    return {name: _value(found.eval(z3.Real(name, ctx=context), model_completion=True)) for name in lemma.variables}


def _value(term: Any) -> Fraction | AlgebraicNumber:  # noqa: ANN401
    """A coordinate as an exact number."""
    if z3.is_rational_value(term):
        return Fraction(term.numerator_as_long(), term.denominator_as_long())
    return AlgebraicNumber(definition=term.sexpr(), decimal=term.as_decimal(17))
