"""The three questions about a lemma, as SMT-LIB 2 text in the logic QF_NRA.

Each question asks for a point where the hypotheses hold and a goal fails.  The text is the only thing
that a solver is given, so what one solver is asked, any other can be asked too.

Claimed: the text says what the parsed lemma says; polynomials are written out term by term with exact
coefficients.  Trusted: this writer, and a solver's reading of the language.
"""

from enum import Enum
from fractions import Fraction
from typing import assert_never

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import Claim
from guarded_moments.proofs.lemma import Lemma
from guarded_moments.proofs.polynomials import Monomial, Polynomial

_SYMBOLS = {Relation.AT_LEAST: ">=", Relation.ABOVE: ">", Relation.EQUAL: "="}


class Question(Enum):
    """What is asked about a lemma; the value says what a point that answers it would show."""

    GOAL = "the lemma is false"
    HYPOTHESES = "the hypotheses can hold"
    TWIN = "the twin is false"

    @property
    def expects_point(self) -> bool:
        """Whether a lemma that is true and not vacuous has such a point."""
        return self is not Question.GOAL


def goal_asked(lemma: Lemma, question: Question) -> Claim | None:
    """The claim that must fail at a point which answers the question; ``None`` is falsehood."""
    match question:
        case Question.GOAL:
            return lemma.goal
        case Question.HYPOTHESES:
            return None
        case Question.TWIN:
            return lemma.false_goal
        case _:
            assert_never(question)


def smt2(lemma: Lemma, question: Question = Question.GOAL) -> str:
    """Write a question as a complete SMT-LIB 2 script.

    Args:
        lemma: the lemma asked about.
        question: what to ask about it.

    Returns:
        The script; ``sat`` answers that there is such a point, ``unsat`` that there is none.
    """
    lines = [
        f"; {lemma.name}: {' '.join(lemma.statement.split())}",
        f"; a model shows that {question.value}",
        "(set-logic QF_NRA)",
        f"(set-info :status {'sat' if question.expects_point else 'unsat'})",
        *(f"(declare-const {name} Real) ; {' '.join(meaning.split())}" for name, meaning in lemma.variables.items()),
        *(f"(assert {_atom(atom)})" for atom in lemma.hypotheses),
    ]
    goal = goal_asked(lemma, question)
    if goal is not None:
        lines.append(f"(assert (not {_conjunction(goal)}))")
    return "\n".join([*lines, "(check-sat)", ""])


def _conjunction(claim: Claim) -> str:
    """A claim as one term of sort Bool; ``and`` takes at least two arguments."""
    atoms = [_atom(atom) for atom in claim]
    return atoms[0] if len(atoms) == 1 else f"(and {' '.join(atoms)})"


def _atom(atom: Atom) -> str:
    """An atom as a term of sort Bool."""
    return f"({_SYMBOLS[atom.relation]} {_polynomial(atom.polynomial)} 0.0)"


def _polynomial(polynomial: Polynomial) -> str:
    """A polynomial as a term of sort Real."""
    terms = [_term(monomial, coefficient) for monomial, coefficient in polynomial.terms]
    match terms:
        case []:
            return "0.0"
        case [term]:
            return term
        case _:
            return f"(+ {' '.join(terms)})"


def _term(monomial: Monomial, coefficient: Fraction) -> str:
    """A monomial with its coefficient; powers are written as products, which every solver reads."""
    names = [name for name, exponent in monomial for _ in range(exponent)]
    factors = names if names and coefficient == 1 else [_number(coefficient), *names]
    return factors[0] if len(factors) == 1 else f"(* {' '.join(factors)})"


def _number(value: Fraction) -> str:
    """An exact rational literal."""
    magnitude = f"{abs(value.numerator)}.0"
    if value.denominator != 1:
        magnitude = f"(/ {magnitude} {value.denominator}.0)"
    return f"(- {magnitude})" if value < 0 else magnitude
