"""How far two bit-exact updates are apart on a cell: the slack at its ends is at least that at any gradient inside.

`H` shrinks along the cell and `|g|*H` grows (`gradient_share_grows`), so that `Hm = H(low)` and
`z = high*H(high)/gap_cap` are good for `derive.update_slack`: `share_of_g = w*gap_cap`, exactly.
"""

from __future__ import annotations

from typing import Any

from guarded_moments.proofs.cell_deviation import UPPER, CellDeviation, FamilyDeviation, family_deviation
from guarded_moments.proofs.cleared import SIZE, instance
from guarded_moments.proofs.derive.both_updates import BothUpdates
from guarded_moments.proofs.derive.context import Context, DerivationError
from guarded_moments.proofs.derive.evaluation import EvaluationArithmetic, Pair, held_constants
from guarded_moments.proofs.derive.first_update import FirstUpdate
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import EXACT, INFLATION, T
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import Statement
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.cell_slack import make_deviation_upper
from guarded_moments.reference.guard.cells import End, make_roots
from guarded_moments.reference.guard.slopes import Point


def derive_cell_deviation(tools: Toolbox, stated: CellDeviation) -> list[Proved]:
    """Derive that what is evaluated, inflated, is at least the bound over the reals."""
    c = Context(tools.prover, sorted(stated.hypotheses, key=str))
    hints = Hints(ladder=((3, 4, 1), (3, 5, 1)))
    c.use(tools.lemma("0 < x", "0 <= x", "1 <= x*x*c", "0 < c", hints=hints), x=EXACT.gap_cap, c=EXACT.curvature)
    op: Any = EvaluationArithmetic(tools, c, stated.cell.definitions, stated.floats)
    k = held_constants(tools, c, ("eps", "gap_cap"))
    m, v, m_hat, v_hat = (Pair(value, value, 0, positive=False) for value in stated.cell.state)
    one, points = op.constant(1.0), []
    for at in stated.cell.ends:
        c.use(tools.transitive, x="0", y="low", z="g")
        c.use(tools.transitive, x="0", y="g", z="high")
        g = Pair(at.g, at.g, 0, positive=False)
        root, root_hat = make_roots(op)(k, v, v_hat, g)
        reciprocal, reciprocal_hat = (op.div(one, op.add(of, k.eps)) for of in (root, root_hat))
        points.append(Point(End(g, reciprocal_hat, None), root, root_hat, reciprocal, None))
    made = make_deviation_upper(op)(k, Pair(UPPER, UPPER, 0, positive=False), m, m_hat, *points)
    if (made.exact, made.computed) != (stated.bound, stated.evaluated) or made.roundings > stated.roundings:
        raise DerivationError(f"{made.roundings} roundings were derived, and {stated.roundings} counted")
    op.inflated(INFLATION, stated.roundings, made.roundings)
    power = op.power(made.roundings)
    product, (rounded, error) = made.computed * INFLATION, op.rounding_of(made.computed * INFLATION)
    c.use(tools.product, x=made.computed, y=INFLATION)
    c.use(op.rounds, x=product, f=rounded, d=error)
    facts = {"p": "p*X <= f", "I": "0 <= I", "X": "0 <= X", "one": "1 <= I*p"}
    exactly = tools.by_products("X <= f*I", facts, "p I", "X one")
    facts |= {"t": "0 <= t", "y": "t*(f*I) <= y", "one": "1 <= I*(p*t)"}
    nearly = tools.by_products("X <= y", facts, "p t I", "y", "X one")
    values = {"p": power, "X": made.exact, "f": made.computed, "I": INFLATION}
    return compared([*c.use(exactly, **values), *c.use(nearly, **values, y=rounded, t=T)], stated)


def derive_family_deviation(
    tools: Toolbox, theorem: FirstUpdate, stated: Statement, made: CellDeviation, shown: list[Proved]
) -> list[Proved]:
    """Derive the theorem of one family, from that of any cell."""
    whole = family_deviation(stated, made)
    return compared(_OnCell(tools, stated, whole, made).run(theorem.trajectory(stated), shown), whole)


class _OnCell(BothUpdates):
    """The context in which both trajectories of a family meet a cell; places are numbered as in `derive.cell`."""

    def __init__(self, tools: Toolbox, stated: Statement, whole: FamilyDeviation, made: CellDeviation) -> None:
        self.made = made
        op = ExactArithmetic(made.cell.definitions)
        super().__init__(tools, stated, whole.hypotheses, op)
        names = self.c.names
        names |= {"ag": SIZE, "low": Polynomial.variable("low"), "high": Polynomial.variable("high")}
        for place, at in zip(("low", "", "high"), made.cell.at, strict=True):
            names |= {f"S1{place}": at.root, f"S2{place}": at.root_hat}
            names |= {f"H1{place}": at.native, f"H2{place}": at.end.reciprocal}
        end = made.cell.at[2]
        for index, reciprocal in ((1, end.native), (2, end.end.reciprocal)):
            names[f"z{index}"] = op.div(end.g * reciprocal, EXACT.gap_cap)

    def at_zero(self, op: ExactArithmetic, index: int, m: Polynomial, v: Polynomial) -> dict[str, Polynomial]:
        """The magnitude of a first moment alone: the slack is taken at the ends of the cell."""
        del m, v
        return {f"am{index}": op.absolute(self.made.cell.state[2 * index - 2])}

    def run(self, native: list[Proved], shown: list[Proved]) -> list[Proved]:
        c, tools = self.c, self.tools
        self.constants()
        c.use(tools.positive_product, x="bc", y="ru")
        c.use(tools.transitive, x="0", y="low", z="ag")
        c.use(tools.transitive, x="0", y="ag", z="high")
        for index in (1, 2):
            self._inside(index)
        self._share()
        bounds = [{"Hm": c.poly(f"H{index}low"), "z": c.poly(f"z{index}")} for index in (1, 2)]
        self.trajectories(native, bounds)
        c.by("0 <= step", "0 < step")
        c.names["N"] = c.poly("((1-w)*m2 + w*g)*H2 - ((1-w)*m1 + w*g)*H1")
        c.use(tools.scaled_magnitude, x="N", a=UPPER, c="step")
        values = instance(self.stated)
        bound = self.made.bound.substitute(values)
        self.apart(bound)
        c.use(shown, **values)
        recording, curvature = tools.prover.recording, c.known_fact(c.atoms("0 <= curv")[0])
        difference, finished = c.poly("U2 - U1"), []
        for most in self.made.compared:
            for one in (difference, -difference):
                (proved,) = c.use(tools.transitive, x=one, y=bound, z=most.substitute(values))
                finished.append(recording.eliminate_root(proved, "qc", c.poly("curv"), curvature))
        return finished

    def _inside(self, index: int) -> None:
        """`H <= H(low)`, and `|g|*H <= high*H(high)`, of one state."""
        c, tools = self.c, self.tools
        for place in ("low", "", "high"):
            c.by(f"0 < S{index}{place} + eps", f"0 <= S{index}{place}", "0 < eps")
            c.use(tools.positive_quotient, d=f"S{index}{place} + eps", p="1", q=f"H{index}{place}")
        facts = {"c": "0 < curv", "x": "0 <= low", "g": "low <= ag"}
        facts |= {place: f"S{index}{place}*S{index}{place} == rad*v{index} + curv*{x}*{x}"
                  for place, x in (("low", "low"), ("", "ag"))}  # fmt: skip
        c.collect(f"S{index}low*S{index}low <= S{index}*S{index}", facts, ["c x g", "c g g"])
        c.use(tools.roots, x=f"S{index}low", y=f"S{index}")
        c.by(f"S{index}low + eps <= S{index} + eps", f"S{index}low <= S{index}")
        c.use(tools.reciprocals, a=f"S{index}low + eps", b=f"S{index} + eps", i=f"H{index}low", j=f"H{index}")
        c.use(tools.product, x="rad", y=f"v{index}")
        self._grows(index)

    def _grows(self, index: int) -> None:
        """`|g|*H <= high*H(high)`: the lemma, with the reciprocals put in."""
        c, tools = self.c, self.tools
        c.use(tools.lemmas("gradient_share_grows"), a="ag", x="high", c="curv", Y=f"rad*v{index}", e="eps",
              S=f"S{index}", T=f"S{index}high")  # fmt: skip
        facts = {"grows": "x*(T + e) <= g*(S + e)", "K": "0 < K", "H": "0 < H"}
        facts |= {"one": "H*(S + e) == 1", "other": "K*(T + e) == 1"}
        put = tools.by_products("x*H <= g*K", facts, "grows K H")
        c.use(put, x="ag", g="high", S=f"S{index}", T=f"S{index}high", e="eps", H=f"H{index}", K=f"H{index}high")

    def _share(self) -> None:
        """`share_of_g == w*gap_cap`, so `w*|g|*H <= share_of_g*z`."""
        c, tools = self.c, self.tools
        defined = ("s*d == w*b", "d*r == c", "k*c == b")
        same = tools.lemma("s*d == w*k*r*d", *defined, hints=Hints(ladder=((1, 99, 3),)))
        c.use(same, s="share_of_g", d="below", w="w", b="b", r="ru", c="c", k="bc")
        equal = tools.lemma("x <= y and y <= x", "x*d == y*d", "0 < d", hints=Hints(ladder=((2, 3, 1),)))
        c.use(equal, x="share_of_g", y="w*bc*ru", d="below")
        for index in (1, 2):
            c.by("0 <= high", "0 <= ag", "ag <= high")
            c.use(tools.product, x="high", y=f"H{index}high")
            c.use(tools.nonnegative_quotient, d="gap_cap", p=f"high*H{index}high", q=f"z{index}")
            facts = {"grows": "x <= p", "w": "0 <= w", "z": "z*k == p", "s": "w*k <= s", "z0": "0 <= z"}
            enough = tools.by_products("w*x <= s*z", facts, "w grows", "s z0")
            c.use(enough, x=c.poly(f"ag*H{index}"), p=f"high*H{index}high", z=f"z{index}", k="gap_cap",
                  s="share_of_g", w="w")  # fmt: skip
