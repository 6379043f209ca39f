"""Why the guard holds: the lemmas behind it, and the harness that puts them to a solver.

    >>> from guarded_moments.proofs import all_lemmas, prove_all
    >>> all(outcome.established for outcome in prove_all(all_lemmas()))
    True

What this package claims so far is each lemma by itself, over the reals.  That together they give the
theorem is argued in their docstrings and not yet derived by a program.
"""

from guarded_moments.proofs.claims import Atom, Claim, ClaimError, Relation, parse_claim
from guarded_moments.proofs.lemma import Lemma, LemmaError
from guarded_moments.proofs.lemmas import RESULTS, all_lemmas
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.prove import prove_all
from guarded_moments.proofs.smt import Question, smt2
from guarded_moments.proofs.solvers import (
    SOLVER,
    AlgebraicNumber,
    Answer,
    Outcome,
    Verdict,
    ask,
    examine,
    format_model,
)

__all__ = [
    "RESULTS",
    "SOLVER",
    "AlgebraicNumber",
    "Answer",
    "Atom",
    "Claim",
    "ClaimError",
    "Lemma",
    "LemmaError",
    "Outcome",
    "Polynomial",
    "Question",
    "Relation",
    "Verdict",
    "all_lemmas",
    "ask",
    "examine",
    "format_model",
    "parse_claim",
    "prove_all",
    "smt2",
]
