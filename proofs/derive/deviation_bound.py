"""What the guard compares with the tolerance is at least its bound over the reals: see `derive.evaluation`."""

from __future__ import annotations

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.context import Context, DerivationError
from guarded_moments.proofs.derive.evaluation import EvaluationArithmetic, Pair, held_constants
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import COMPARED, INFLATION, Evaluation, T
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.reference.guard.closed_form import make_deviation_bound


def derive_evaluation(tools: Toolbox, stated: Evaluation) -> list[Proved]:
    """Derive that what is compared is at least the exact bound."""
    c = Context(tools.prover, sorted(stated.hypotheses, key=str))
    op = EvaluationArithmetic(tools, c, Definitions("guard_"), Definitions("float_"))
    inputs = [Pair(value, value, 0, positive=False) for value in stated.state]
    total = make_deviation_bound(op)(held_constants(tools, c), *inputs)
    if (total.exact, total.computed, total.roundings) != (stated.bound, stated.evaluated, stated.roundings):
        raise DerivationError(f"{total.roundings} roundings were derived, and {stated.roundings} counted")
    # compared = f*inflation*(1 + d) >= f*inflation*t >= X*t**(count + 1)*inflation >= X.
    p, last = op.power(total.roundings), Polynomial.variable("float_last")
    op.power(total.roundings + 1)
    product = total.computed * INFLATION
    c.use(tools.product, x=total.computed, y=INFLATION)
    c.use(op.rounds, x=product, f=COMPARED, d=last)
    facts = {"p": "p*X <= f", "t": "0 <= t", "I": "0 <= I", "y": "t*(f*I) <= y"}
    final = tools.by_products("X*(p*t*I) <= y", facts, "p t I", "y")
    c.use(final, X=total.exact, p=p, f=total.computed, I=INFLATION, y=COMPARED)
    more = tools.lemma("X <= y", "X*k <= y", "1 <= k", "0 <= X")
    return c.use(more, X=total.exact, y=COMPARED, k=p * T * INFLATION)
