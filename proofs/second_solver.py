"""The second solver: puts the text of a question to cvc5, where it is installed (`pip install guarded-moments[cvc5]`).

Claimed: the verdict is cvc5's own on the very text that z3 was given.  Limits are in its resource units, never seconds.
A disagreement of the two says that one of them, or the text, is wrong: it is an error, never an outvoting.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from guarded_moments.proofs.lemma import Lemma
from guarded_moments.proofs.smt import Question, smt2
from guarded_moments.proofs.verdicts import Verdict

#: Units of cvc5's own, several times what the hardest question that it answers takes.
RESOURCE_LIMIT: Final = 100_000


def is_installed() -> bool:
    """Whether cvc5 can be asked."""
    return find_spec("cvc5") is not None


def version() -> str:
    """The second solver, for reports."""
    import cvc5  # noqa: PLC0415 - an optional dependency

    return f"cvc5 {cvc5.__version__}"


def ask_cvc5(lemma: Lemma, question: Question, resource_limit: int = RESOURCE_LIMIT) -> Verdict:
    """Put one question about a lemma to cvc5.

    Args:
        lemma: the lemma.
        question: what to ask.
        resource_limit: what the query may take.

    Returns:
        `REFUTED` if a point answers the question, `PROVED` if there is none, else `UNKNOWN`.
    """
    import cvc5  # noqa: PLC0415 - an optional dependency

    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("rlimit-per", str(resource_limit))
    solver.setOption("nl-cov", "false")  # its coverings do not count what they take
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, smt2(lemma, question), lemma.name)
    answer = ""
    while not (command := parser.nextCommand()).isNull():
        answer = command.invoke(solver, parser.getSymbolManager()).strip() or answer
    return {"unsat": Verdict.PROVED, "sat": Verdict.REFUTED}.get(answer, Verdict.UNKNOWN)
