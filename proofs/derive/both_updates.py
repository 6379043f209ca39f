"""Both trajectories of one family in one context, and that the guard's constants are good for what uses them.

Claimed: nothing; what is derived from here is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Statement
from guarded_moments.proofs.symbolic import ExactArithmetic, polynomial_of

_ONE = Polynomial.constant(1)


class BothUpdates:
    """The context in which both trajectories meet; the native state has index 1, the recovered one 2."""

    def __init__(self, tools: Toolbox, stated: Statement, hypotheses: Iterable[Atom], op: ExactArithmetic) -> None:
        """Start from hypotheses, with the guard's quantities as `op` defined them."""
        self.tools, self.stated = tools, stated
        k, exact = stated.constants, stated.exact
        names: dict[str, Polynomial] = {}
        for index, prefix in ((1, NATIVE), (2, RECOVERED)):
            m, v = (Polynomial.variable(prefix + name) for name in STATE)
            names |= {f"m{index}": m, f"v{index}": v, **self.at_zero(op, index, m, v)}
        names |= {"rad": k.radicand, "curv": k.curvature, "gap_cap": k.gap_cap, "b": polynomial_of(stated.real.root)}
        names |= {"c": polynomial_of(stated.real.c), "w": k.w, "eps": k.eps, "step": k.step, "root_cap": k.root_cap}
        names["beta2"] = polynomial_of(stated.real.beta2)
        names["s3"] = exact.root_above(Polynomial.constant(3))
        names["t"] = exact.quotient(Polynomial.constant(9), names["s3"])
        names["bc"] = exact.quotient(names["b"], names["c"])
        names["ru"] = exact.root_above(names["c"])
        names["below"] = exact.quotient(names["c"], names["ru"])
        names["share_of_g"] = exact.quotient(k.w * names["b"], names["below"])
        names["eps_cap"] = k.eps_cap
        self.c = Context(tools.prover, sorted(hypotheses, key=str), names=names)
        self.c.assume("0 <= qc", "qc*qc == curv")

    def at_zero(self, op: ExactArithmetic, index: int, m: Polynomial, v: Polynomial) -> dict[str, Polynomial]:
        """The magnitude of a first moment, and the root and the reciprocal of the state without a gradient."""
        k = self.stated.constants
        root = op.sqrt(op.mul(k.radicand, v))
        return {f"A{index}": root, f"am{index}": op.absolute(m), f"R{index}": op.div(_ONE, op.add(root, k.eps))}

    def constants(self) -> None:
        """That the guard's constants are good for what is assumed of them."""
        c, tools = self.c, self.tools
        if c.poly("b") != Polynomial.variable("root"):
            c.use(tools.positive_quotient, d="root", p="1", q="b")
        c.use(tools.positive_product, x="b", y="b")
        c.use(tools.nonnegative_quotient, d="b*b", p="beta2", q="rad")
        c.use(tools.positive_quotient, d="b*b", p="c", q="curv")
        c.by("0 <= b*b*curv", "curv*b*b == c", "0 < c")
        c.by("0 <= curv", "0 < curv")
        c.use(tools.positive_quotient, d="c", p="b", q="bc")
        c.use(tools.product, x="bc", y="ru")
        c.use(tools.product, x="qc", y="b")
        c.by("(qc*b)*(qc*b) == c", "qc*qc == curv", "curv*b*b == c", hints=Hints(ladder=((1, 99, 2),)))
        c.by("(qc*b)*(qc*b) <= ru*ru", "(qc*b)*(qc*b) == c", "c <= ru*ru")
        c.use(tools.roots, x="qc*b", y="ru")
        facts = {"root": "qc*b <= ru", "q": "0 <= qc*b", "bc": "0 < bc", "is": "(qc*b)*(qc*b) == c", "def": "bc*c == b"}
        c.collect("b*1 <= b*(bc*ru*qc)", facts, ["root q bc"])
        c.use(tools.factor_removed, x="1", y="bc*ru*qc", t="b")
        squared = tools.lemma("1 <= k*k*c", "1 <= k*q", "q*q == c", hints=Hints(ladder=((2, 4, 2),)))
        c.use(squared, k="gap_cap", q="qc", c="curv")
        c.use(tools.lemma("0 < r", "0 <= r", "c <= r*r", "0 < c"), r="ru", c="c")
        c.use(tools.positive_quotient, d="ru", p="c", q="below")
        c.by("below*ru <= ru*ru", "below*ru == c", "c <= ru*ru")
        c.use(tools.factor_removed, x="below", y="ru", t="ru")
        facts = {"b": "0 < b", "is": "b*r == c", "r": "b <= r"}
        c.use(tools.by_products("b*b <= c", facts, "b r"), b="below", r="ru", c="c")

    def without_gradient(self, index: int) -> None:
        """`H <= H0`, and `w*|g|*H <= share_of_g`, of one state: what holds for every gradient."""
        c, tools = self.c, self.tools
        parts = {"A": f"A{index}", "S": f"S{index}", "H0": f"R{index}", "H": f"H{index}", "v": f"v{index}"}
        c.by(f"0 < A{index} + eps", f"0 <= A{index}", "0 < eps")
        c.use(tools.positive_quotient, d=f"A{index} + eps", p="1", q=f"R{index}")
        inner = Context(tools.prover, names=c.names | {name: c.poly(value) for name, value in parts.items()})
        inner.known = c.known
        squares = {"A": "A*A == rad*v", "S": "S*S == rad*v + curv*ag*ag", "curv": "0 <= curv", "g": "0 <= ag"}
        inner.collect("A*A <= S*S", squares, ["curv g g"])
        inner.use(tools.roots, x="A", y="S")
        inner.by("A + eps <= S + eps", "A <= S")
        inner.use(tools.reciprocals, a="A + eps", b="S + eps", i="H0", j="H")
        defined = ("S*S == rad*v + curv*ag*ag", "rad*b*b == beta2", "curv*b*b == c")
        inner.by("S*b*S*b == beta2*v + c*ag*ag", *defined, hints=Hints(ladder=((1, 99, 2),)))
        facts = {"B": "0 <= beta2", "v": "0 <= v", "g": "0 <= ag", "c": "below*below <= c"}
        facts["V"] = "S*b*S*b == beta2*v + c*ag*ag"
        inner.collect("(ag*below)*(ag*below) <= (S*b)*(S*b)", facts, ["B v", "g g c"])
        for x, y in (("ag", "below"), ("S", "b")):
            inner.use(tools.product, x=x, y=y)
        inner.use(tools.roots, x="ag*below", y="S*b")
        facts = {"w": "0 <= w", "H": "0 < H", "root": "ag*below <= S*b", "b": "0 < b", "eps": "0 < eps"}
        inner.collect("(w*ag*H)*below <= w*b", facts | {"one": "H*(S + eps) == 1"}, ["w H root", "w b eps H"])
        inner.use(tools.below_quotient, d="below", x="w*ag*H", p="w*b", q="share_of_g")

    def for_every_gradient(self) -> list[dict[str, Polynomial]]:
        """What the slack of both trajectories depends on, over all gradients."""
        for index in (1, 2):
            self.without_gradient(index)
        return [{"Hm": self.c.poly(f"R{index}"), "z": _ONE} for index in (1, 2)]

    def trajectories(self, native: list[Proved], bounds: Sequence[Mapping[str, Polynomial]]) -> None:
        """`|U + E| <= F` of both: `E` the update over the reals, `F` the slack with what bounds `H` and its share."""
        c, stated = self.c, self.stated
        names = {name for one in native for name in one.theorem.variables if name.startswith(NATIVE)}
        for index, prefix, of in ((1, NATIVE, bounds[0]), (2, RECOVERED, bounds[1])):
            renamed = {name: Polynomial.variable(prefix + name.removeprefix(NATIVE)) for name in names}
            places = {"am": f"am{index}", "S": f"S{index}", "H": f"H{index}", "ag": "ag"}
            c.use(native, **renamed, **places, **of)
            c.names[f"E{index}"] = c.poly(f"step*((1-w)*m{index} + w*g)*H{index}")
            moment, rest = of["Hm"] * c.poly(f"step*slack_moment*am{index}"), of["Hm"] * c.poly("step*slack_reciprocal")
            c.names[f"F{index}"] = moment + rest + of["z"] * c.poly("step*slack_gradient") + c.poly("slack_floor")
        c.names |= {"U1": stated.native.update, "U2": stated.recovered.update}

    def apart(self, bound: Polynomial) -> list[Proved]:
        """From `|E2 - E1| + F1 + F2 <= bound` to `|U2 - U1| <= bound`."""
        both = self.tools.lemmas("two_trajectories")
        apart = bound - self.c.poly("F1 + F2")
        return self.c.use(both, U="-E1", Uh="-E2", F="U1", Fh="U2", s="F1", sh="F2", T=apart)
