"""Why the guard holds: the lemmas, the theorem that a program derives from them, and their proofs as data.

    >>> from guarded_moments.proofs import check_certificates
    >>> all(claim.problem is None for claim in check_certificates())
    True

Checking imports no solver.  What finds proofs and cross-checks lemmas does, and is loaded when it is asked for:

    >>> from guarded_moments.proofs import all_lemmas, prove_all
    >>> all(outcome.established for outcome in prove_all(all_lemmas()))
    True
"""

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.check import CheckedClaim, check_certificates
from guarded_moments.proofs.claims import Claim, ClaimError, parse_claim
from guarded_moments.proofs.kernel import KernelError, Theorem
from guarded_moments.proofs.lemma import Lemma, LemmaError
from guarded_moments.proofs.lemmas import RESULTS, all_lemmas
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.replay import ProofFileError, replay
from guarded_moments.proofs.smt import Question, smt2
from guarded_moments.proofs.verdicts import Verdict

if TYPE_CHECKING:
    from guarded_moments.proofs.prove import prove_all
    from guarded_moments.proofs.solvers import SOLVER, AlgebraicNumber, Answer, Outcome, ask, examine, format_model

#: What imports a solver, and the module it is in.
_SOLVING = MappingProxyType(
    {
        **dict.fromkeys(
            ("SOLVER", "AlgebraicNumber", "Answer", "Outcome", "ask", "examine", "format_model"), "solvers"
        ),
        "prove_all": "prove",
    }
)

__all__ = [
    "RESULTS",
    "SOLVER",
    "AlgebraicNumber",
    "Answer",
    "Atom",
    "CheckedClaim",
    "Claim",
    "ClaimError",
    "KernelError",
    "Lemma",
    "LemmaError",
    "Outcome",
    "Polynomial",
    "ProofFileError",
    "Question",
    "Relation",
    "Theorem",
    "Verdict",
    "all_lemmas",
    "ask",
    "check_certificates",
    "examine",
    "format_model",
    "parse_claim",
    "prove_all",
    "replay",
    "smt2",
]


def __getattr__(name: str) -> object:
    """Load what imports a solver when it is first asked for."""
    if name not in _SOLVING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_SOLVING[name]}"), name)
