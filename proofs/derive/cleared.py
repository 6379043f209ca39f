"""That a dropped cell is safe: what the tolerance leaves, as evaluated, and the theorem of each family.

    t**3 * step_f * allowance * I <= threshold - slack_f,    I*t**3 >= 1,    slack_f >= slack

of the step size and the slack that binary64 holds, and the inflation `I`: so `step*|N| + slack <= threshold` wherever
`|N| <= allowance`.
"""

from __future__ import annotations

from collections.abc import Sequence

from guarded_moments.proofs.cleared import SIZE, THRESHOLD, Cleared, Row, Searched, cleared, instance
from guarded_moments.proofs.derive.both_updates import BothUpdates
from guarded_moments.proofs.derive.context import Context, DerivationError, at_least, within
from guarded_moments.proofs.derive.evaluation import EvaluationArithmetic, Pair, held_constants
from guarded_moments.proofs.derive.first_update import FirstUpdate
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import EXACT, HELD, INFLATION, ONE, T
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import Statement
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.allowance import make_update_slack


def derive_searched(tools: Toolbox, stated: Searched, evaluated: Sequence[Proved]) -> list[Proved]:
    """Derive what holds on a dropped cell, from the theorem about its evaluated bounds."""
    c = Context(tools.prover, sorted(stated.hypotheses, key=str))
    op = EvaluationArithmetic(tools, c, stated.cell.exact.definitions, stated.cell.floats)
    inputs = [Pair(value, value, 0, positive=False) for value in stated.cell.exact.state]
    slack = make_update_slack(op)(held_constants(tools, c), *inputs)
    if slack.exact != stated.slack:
        raise DerivationError(f"the source's slack is {slack.exact}, not {stated.slack}")
    c.use(evaluated)
    _bounded(c, tools, stated)
    left = _left(c, tools, op, slack, stated)
    last = tools.by_products(
        "step*n + X <= left + X", {"n": "n <= a", "step": "0 <= step", "held": "step <= f", "a": "0 <= a",
                                   "one": "1 <= k", "left": "f*a*k <= left", "f": "0 <= f"},
        "step n", "held a", "one f a", "left",
    )  # fmt: skip
    shown = []
    for sign in (1, -1):
        of = stated.cell.exact.deviation(sign)
        for n in (of, -of):
            values = {"n": n, "a": stated.allowance, "step": EXACT.step, "f": HELD.step, "k": INFLATION * T**3}
            c.use(last, **values, left=left, X=slack.exact)
            shown += c.use(
                tools.lemma("y <= z", "y <= l + X", "l <= z - X"),
                y=EXACT.step * n + slack.exact, z=THRESHOLD, l=left, X=slack.exact,
            )  # fmt: skip
    return compared(shown, stated)


def derive_row(tools: Toolbox, stated: Row, shown: Sequence[Proved]) -> list[Proved]:
    """Derive what holds on neighbouring cells, from the theorem of one: the gradient is on one side of every cut."""
    recording, g = tools.prover.recording, Polynomial.variable("g")
    joined, *others = ([recording.instantiate(one, values) for one in shown] for values in stated.renamed)
    for cut, of_next in zip(stated.cuts, others, strict=True):
        joined = [recording.cases(one, other, cut - g) for one, other in zip(joined, of_next, strict=True)]
    return compared(joined, stated)


def _bounded(c: Context, tools: Toolbox, stated: Searched) -> None:
    """`|N| <= allowance` of both signs of the gradient."""
    for sign, upper in zip((1, -1), stated.cell.uppers, strict=True):
        of = stated.cell.exact.deviation(sign)
        c.use(tools.transitive, x=upper, y=stated.upper, z=stated.allowance)
        c.use(tools.looser, x=of, y=upper, z=stated.allowance)
    c.use(tools.lemma("0 <= a", "abs(n) <= a"), n=stated.cell.exact.deviation(1), a=stated.allowance)


def _left(c: Context, tools: Toolbox, op: EvaluationArithmetic, slack: Pair, stated: Searched) -> Polynomial:
    """Show `step_f*allowance*I*t**3 <= threshold - slack_f` and `slack_f >= slack`; returns the right side."""
    floats = op.floats.definitions
    inflated, error = op.rounding_of(slack.computed * INFLATION)
    left, left_error = op.rounding_of(THRESHOLD - inflated)
    by_step = floats.quotient(left, HELD.step)
    divided, divided_error = op.rounding_of(by_step)
    by_inflation = floats.quotient(divided, INFLATION)
    allowance, allowance_error = op.rounding_of(by_inflation)
    if allowance != stated.allowance:
        raise DerivationError(f"the source's allowance is {stated.allowance}, not {allowance}")
    # The slack: inflated by as much as its evaluation may fall short.
    op.inflated(INFLATION, stated.roundings, slack.roundings + 1)
    power = op.power(slack.roundings)
    c.use(tools.product, x=slack.computed, y=INFLATION)
    c.use(op.rounds, x=slack.computed * INFLATION, f=inflated, d=error)
    facts = {"p": "p*X <= f", "t": "0 <= t", "I": "0 <= I", "y": "t*(f*I) <= y", "X": "0 <= X", "one": "1 <= I*(p*t)"}
    c.use(tools.by_products("X <= y", facts, "p t I", "y", "X one"), X=slack.exact, p=power, f=slack.computed,
          I=INFLATION, y=inflated, t=T)  # fmt: skip
    # What is left: not negative, since the allowance is not, and each operation divided by no more than it says.
    before = tools.lemma("0 <= x", "0 <= f", "f == x + x*d", "abs(d) <= mu", "mu <= 1/2")
    product = tools.lemma("0 <= p", "q*d == p", "0 <= q", "0 <= d")
    for result, exact, relative, dividend, divisor in (
        (allowance, by_inflation, allowance_error, divided, INFLATION),
        (divided, by_step, divided_error, left, HELD.step),
        (left, THRESHOLD - inflated, left_error, None, None),
    ):
        c.use(before, f=result, x=exact, d=relative)
        c.use(op.rounds, x=exact, f=result, d=relative)
        if dividend is not None and divisor is not None:
            c.use(product, q=exact, d=divisor, p=dividend)
    dissolved = tools.by_products("t*a*I <= d", {"a": "t*a <= q", "q": "q*I == d", "I": "0 <= I"}, "a I")
    c.use(dissolved, a=allowance, q=by_inflation, d=divided, I=INFLATION, t=T)
    c.use(dissolved, a=divided, q=by_step, d=left, I=HELD.step, t=T)
    facts = {"a": "t*a*I <= d", "d": "t*d*f <= l", "l": "t*l <= y", "f": "0 <= f", "t": "0 <= t"}
    c.use(tools.by_products("f*a*(I*t**3) <= y", facts, "a f t t", "d t", "l"), a=allowance, d=divided, l=left,
          y=THRESHOLD - inflated, f=HELD.step, I=INFLATION, t=T)  # fmt: skip
    op.inflated(INFLATION, stated.roundings, 3)
    c.by(at_least(THRESHOLD - slack.exact, THRESHOLD - inflated), at_least(inflated, slack.exact))
    return THRESHOLD - inflated


def derive_cleared(
    tools: Toolbox, theorem: FirstUpdate, stated: Statement, search: Searched, shown: Sequence[Proved]
) -> list[Proved]:
    """Derive the theorem of one family, from that of any dropped cell."""
    whole = cleared(stated, search)
    both = _Dropped(tools, stated, whole, search)
    return compared(both.run(theorem.trajectory(stated), shown), whole)


class _Dropped(BothUpdates):
    """The context in which both trajectories of a family meet a dropped cell."""

    def __init__(self, tools: Toolbox, stated: Statement, whole: Cleared, search: Searched) -> None:
        self.search, self.cell = search, search.cell
        super().__init__(tools, stated, whole.hypotheses, ExactArithmetic(search.cell.exact.definitions))
        inside = self.cell.exact.at[1]
        self.c.names |= {"ag": SIZE, "S1": inside.root, "S2": inside.root_hat}
        self.c.names |= {"H1": inside.native, "H2": inside.end.reciprocal}

    def at_zero(self, op: ExactArithmetic, index: int, m: Polynomial, v: Polynomial) -> dict[str, Polynomial]:
        """As the search's slack defines them, in the constants of the guard."""
        m, v = self.cell.exact.state[2 * index - 2 : 2 * index]
        root = op.sqrt(EXACT.radicand * v)
        return {f"A{index}": root, f"am{index}": op.absolute(m), f"R{index}": op.div(ONE, root + EXACT.eps)}

    def run(self, native: list[Proved], shown: Sequence[Proved]) -> list[Proved]:
        c, tools = self.c, self.tools
        self.constants()
        for index in (1, 2):
            c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
            c.use(tools.positive_quotient, d=f"S{index} + eps", p="1", q=f"H{index}")
        self.trajectories(native, self.for_every_gradient())
        c.use(shown, **instance(self.stated))
        self._of_sign()
        recording = tools.prover.recording
        curvature = c.known_fact(c.atoms("0 <= curv")[0])
        apart = self.apart(THRESHOLD)
        return [recording.eliminate_root(one, "qc", c.poly("curv"), curvature) for one in apart]

    def _of_sign(self) -> None:
        """`step*|E2 - E1| + F1 + F2 <= threshold`, whichever sign the gradient has."""
        c, tools = self.c, self.tools
        values = instance(self.stated)
        proved: list[list[Proved]] = []
        for sign, way in ((1, ""), (-1, "-")):
            inner = Context(tools.prover, names=c.names)
            inner.known = dict(c.known)
            inner.assume(f"0 <= {way}g")
            inner.use(tools.same_magnitude, x=f"{way}g", a="ag")
            of = self.cell.exact.deviation(sign).substitute(values)
            moved = tools.lemma("p + q*y <= z", "p + q*x <= z", "x == y", hints=Hints(ladder=((1, 99, 1),)))
            slope = Polynomial.of(
                (tuple(pair for pair in monomial if pair[0] != "size"), value)
                for monomial, value in of.terms if any(name == "size" for name, _ in monomial)
            )  # fmt: skip
            rest = of - slope * SIZE
            both = []
            for turn in (ONE, -ONE):
                step = c.poly("step")
                p = turn * step * rest + c.poly("F1 + F2")
                g = c.poly("g") if sign > 0 else -c.poly("g")
                both += inner.use(moved, p=p, q=turn * step * slope, x=SIZE, y=g, z=THRESHOLD)
            proved.append(both)
        for one, other in zip(*proved, strict=True):
            c.add(tools.prover.recording.cases(one, other, c.poly("g")))
        left = THRESHOLD - c.poly("F1 + F2")
        c.by(within(c.poly("E2 - E1"), left), *(one.conclusion for one in proved[0]), hints=Hints(ladder=((1, 99, 0),)))
