"""The theorem about the first update: two trajectories and the difference of the exact updates, put together.

What was introduced on the way (the magnitude of the gradient, the roots and reciprocals of the exact updates, the root
of the curvature) is eliminated, so that the theorem has the hypotheses of the statement and no others.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.context import Context, DerivationError
from guarded_moments.proofs.derive.difference import derive_difference
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.derive.trajectory import derive_trajectory
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Statement
from guarded_moments.proofs.symbolic import ExactArithmetic, polynomial_of
from guarded_moments.reference.guard.constants import GuardConstants

_ONE = Polynomial.constant(1)


class FirstUpdate:
    """Derives the theorem of any family; the difference of the exact updates is derived once."""

    def __init__(self, tools: Toolbox) -> None:
        """Derive what all families share."""
        self.tools = tools
        self.difference = derive_difference(tools)

    def derive(self, stated: Statement) -> list[Proved]:
        """Derive the theorem of one family.

        Raises:
            DerivationError: it needs a hypothesis that the statement does not have, or concludes something else.
        """
        shown = _Composition(self.tools, stated, self.difference).run()
        for proved, goal in zip(shown, stated.conclusion, strict=True):
            surplus = proved.theorem.hypotheses - stated.hypotheses
            if surplus:
                raise DerivationError(f"not among the hypotheses: {sorted(map(str, surplus))}")
            if proved.conclusion != goal:
                raise DerivationError(f"concludes {proved.conclusion}, not {goal}")
        return shown


class _Composition:
    """The context in which both trajectories and the difference meet."""

    def __init__(self, tools: Toolbox, stated: Statement, difference: list[Proved]) -> None:
        self.tools, self.stated, self.difference = tools, stated, difference
        op, k = ExactArithmetic(stated.guard), stated.constants
        names: dict[str, Polynomial] = {}
        for index, prefix in ((1, NATIVE), (2, RECOVERED)):
            m, v = (Polynomial.variable(prefix + name) for name in STATE)
            root = op.sqrt(op.mul(k.radicand, v))
            names |= {f"m{index}": m, f"v{index}": v, f"A{index}": root, f"am{index}": op.absolute(m)}
            names[f"R{index}"] = op.div(_ONE, op.add(root, k.eps))
        exact = stated.exact
        names |= {"rad": k.radicand, "curv": k.curvature, "gap_cap": k.gap_cap, "b": polynomial_of(stated.real.root)}
        names |= {"c": polynomial_of(stated.real.c), "w": k.w, "eps": k.eps, "step": k.step, "root_cap": k.root_cap}
        names["beta2"] = polynomial_of(stated.real.beta2)
        names["s3"] = exact.bounding_root(Polynomial.constant(3), above=True)
        names["t"] = exact.quotient(Polynomial.constant(9), names["s3"])
        names["bc"] = exact.quotient(names["b"], names["c"])
        names["ru"] = exact.bounding_root(names["c"], above=True)
        names["eps_cap"] = k.eps_cap
        c = self.c = Context(tools.prover, sorted(stated.hypotheses, key=str), names=names)
        c.assume("0 <= ag", "ag*ag == g*g", "0 <= qc", "qc*qc == curv")
        for index in (1, 2):
            c.assume(f"0 <= S{index}", f"S{index}*S{index} == rad*v{index} + curv*ag*ag")
            c.assume(f"0 < H{index}", f"H{index}*(S{index} + eps) == 1")

    def run(self) -> list[Proved]:
        c, tools, stated = self.c, self.tools, self.stated
        self._constants()
        native = derive_trajectory(tools, stated)
        names = {name for one in native for name in one.theorem.variables if name.startswith(NATIVE)}
        for index, prefix in ((1, NATIVE), (2, RECOVERED)):
            renamed = {name: Polynomial.variable(prefix + name.removeprefix(NATIVE)) for name in names}
            c.use(native, **renamed, am=f"am{index}", A=f"A{index}", H0=f"R{index}", S=f"S{index}", H=f"H{index}")
        fields = {name: getattr(stated.constants, name) for name in GuardConstants._fields}
        c.use(self.difference, **fields, m="m1", v="v1", m_hat="m2", v_hat="v2", t="t")
        c.names |= {"U1": stated.native.update, "U2": stated.recovered.update}
        for index in (1, 2):
            c.names[f"E{index}"] = c.poly(f"step*((1-w)*m{index} + w*g)*H{index}")
            slack = f"step*(slack_moment*am{index}*R{index} + slack_reciprocal*R{index} + slack_gradient) + slack_floor"
            c.names[f"F{index}"] = c.poly(slack)
        apart = c.poly("F1 + F2")
        apart_by = tools.lemmas("two_trajectories")
        shown = c.use(apart_by, U="-E1", Uh="-E2", F="U1", Fh="U2", s="F1", sh="F2", T=stated.bound - apart)
        return [self._eliminated(one) for one in shown]

    def _constants(self) -> None:
        """That the guard's constants are good for what the difference assumes of them."""
        c, tools = self.c, self.tools
        if c.poly("b") != Polynomial.variable("root"):
            c.use(tools.positive_quotient, d="root", p="1", q="b")
        c.use(tools.positive_product, x="b", y="b")
        c.use(tools.nonnegative_quotient, d="b*b", p="beta2", q="rad")
        c.by("0 <= b*b*curv", "curv*b*b == c", "0 < c")
        c.use(tools.nonnegative_quotient, d="b*b", p="c", q="curv")
        c.use(tools.positive_quotient, d="c", p="b", q="bc")
        c.use(tools.product, x="bc", y="ru")
        c.use(tools.product, x="qc", y="b")
        c.by("(qc*b)*(qc*b) == c", "qc*qc == curv", "curv*b*b == c", hints=Hints(ladder=((1, 99, 2),)))
        c.by("(qc*b)*(qc*b) <= ru*ru", "(qc*b)*(qc*b) == c", "c <= ru*ru")
        c.use(tools.roots, x="qc*b", y="ru")
        facts = {"root": "qc*b <= ru", "q": "0 <= qc*b", "bc": "0 < bc", "is": "(qc*b)*(qc*b) == c", "def": "bc*c == b"}
        c.collect("b*1 <= b*(bc*ru*qc)", facts, ["root q bc"])
        c.use(tools.factor_removed, x="1", y="bc*ru*qc", t="b")
        positive = tools.lemma("0 < s", "0 <= s", "3 <= s*s")
        c.use(positive, s="s3")
        c.use(tools.positive_quotient, d="s3", p="9", q="t")
        stationary = tools.lemma(
            "t*t <= 27", "3 <= s*s", "t*s == 9", hints=Hints(ladder=((2, 4, 2),), squares=(c.poly("t"),))
        )
        c.use(stationary, s="s3", t="t")
        c.use(tools.nonnegative_quotient, d="t", p="gap_cap", q="root_cap")
        for index in (1, 2):
            c.by(f"0 < A{index} + eps", f"0 <= A{index}", "0 < eps")
            c.use(tools.positive_quotient, d=f"A{index} + eps", p="1", q=f"R{index}")

    def _eliminated(self, proved: Proved) -> Proved:
        c, recording = self.c, self.tools.prover.recording
        for index in (1, 2):
            (positive,) = c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
            proved = recording.eliminate_reciprocal(proved, f"H{index}", c.poly(f"S{index} + eps"), positive)
            facts = {"rad": "0 <= rad", "curv": "0 <= curv", "v": f"0 <= v{index}", "g": "0 <= ag"}
            (exists,) = c.collect(f"0 <= rad*v{index} + curv*ag*ag", facts, ["rad v", "curv g g"])
            proved = recording.eliminate_root(proved, f"S{index}", c.poly(f"rad*v{index} + curv*ag*ag"), exists)
        (square,) = self.tools.lemma("0 <= g*g", hints=Hints(squares=(c.poly("g"),)))
        proved = recording.eliminate_root(proved, "ag", c.poly("g*g"), square)
        return recording.eliminate_root(proved, "qc", c.poly("curv"), c.known_fact(c.atoms("0 <= curv")[0]))
