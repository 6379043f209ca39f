"""What holds at every gradient of a cell, whichever bound is derived: signs, order, and the gap of the reciprocals.

At any gradient, with `S`, `T` the roots, `H`, `K` the reciprocals of the denominators, `Q` that of `S + T` and `gap`
the signed difference of the radicands,

    K - H == gap * K*H*Q

whose three factors shrink as the gradient grows: `K - H` keeps its sign and shrinks, and no order of `v` and `v_hat` is
needed.  Places are numbered: 0 is the low end of the cell, 1 any gradient inside, 2 the high end.
"""

from __future__ import annotations

from collections.abc import Sequence

from guarded_moments.proofs.cells import CellStatement
from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.symbolic import ExactArithmetic

PLACES = (0, 1, 2)
_NEIGHBOURS = ((0, 1), (1, 2))
#: The root of each state, and its second moment.
_STATES = (("S", "v"), ("T", "v_hat"))


def _difference(tools: Toolbox) -> list[Proved]:
    """What the source computes for `K - H`, though it never subtracts them: `D == K - H` and `D == gap*K*H*Q`.

    The divisor `L` is the larger of `S + T` and TINY; where both roots are zero, so is everything else.
    """
    c = Context(tools.prover, "0 <= S", "0 <= T", "S*S - T*T == gap", "0 < K", "0 < H", "0 < e", "0 < tiny")
    c.assume("K*(T + e) == 1", "H*(S + e) == 1", "B*(S + e) == K", "D*L == gap*B", "tiny <= L", "S + T <= L")
    c.assume("(L - S - T)*(L - tiny) == 0", "(S + T)*(S + T - tiny) >= 0", "Q*L == 1")
    c.by("0 < L", "tiny <= L", "0 < tiny")
    once = Hints(ladder=((1, 99, 1), (1, 99, 2), (1, 99, 3)))
    c.by("B == K*H", "B*(S + e) == K", "H*(S + e) == 1", hints=once)
    c.by("K - H == (S - T)*(K*H)", "K*(T + e) == 1", "H*(S + e) == 1", hints=once)
    # (L - (S + T))*(S + T) is zero, and so is that times S - T, whose magnitude is at most S + T.
    facts = ("(L - s)*(L - y) == 0", "s*(s - y) >= 0", "s <= L", "y <= L", "0 <= s", "0 < y")
    above = tools.lemma("(L - s)*s <= 0", *facts, hints=Hints(ladder=((2, 3, 1), (2, 4, 2), (3, 4, 2))))
    c.by("0 <= S + T", "0 <= S", "0 <= T")
    c.use(above, L="L", s="S + T", y="tiny")
    facts_of = {"L": "S + T <= L", "S": "0 <= S", "T": "0 <= T", "no": "(L - (S + T))*(S + T) <= 0"}
    c.collect("(L - S - T)*(S - T) == 0", facts_of, ["L S", "L T", "no"])
    c.by("(K - H)*L == gap*(K*H)", "K - H == (S - T)*(K*H)", "S*S - T*T == gap", "(L - S - T)*(S - T) == 0",
         hints=Hints(ladder=((1, 99, 3),)))  # fmt: skip
    c.by("D == gap*(K*H*Q)", "D*L == gap*B", "B == K*H", "Q*L == 1", hints=Hints(ladder=((1, 99, 2), (1, 99, 3))))
    c.by("K - H == gap*(K*H*Q)", "(K - H)*L == gap*(K*H)", "Q*L == 1", hints=Hints(ladder=((1, 99, 2), (1, 99, 3))))
    return [c.known_fact(atom) for text in ("D == gap*(K*H*Q)", "K - H == gap*(K*H*Q)") for atom in c.atoms(text)]


class Cell:
    """The context of one cell."""

    def __init__(self, tools: Toolbox, stated: CellStatement) -> None:
        """Derive what holds at the three places."""
        self.tools, self.stated, self.op = tools, stated, ExactArithmetic(stated.definitions)
        k, tiny = stated.constants, Polynomial.variable("tiny")
        names = {"gap": stated.terms.gap, "shift": stated.terms.shift, "pull": stated.terms.pull, "e": k.eps}
        for i, at in zip(PLACES, stated.at, strict=True):
            names |= {f"x{i}": at.g, f"S{i}": at.root, f"T{i}": at.root_hat}
            names |= {f"H{i}": at.native, f"K{i}": at.end.reciprocal, f"D{i}": at.end.difference}
            names[f"L{i}"] = self.op.maximum(at.root + at.root_hat, tiny)
            names[f"B{i}"] = self.op.div(at.end.reciprocal, at.root + k.eps)
        self.c = Context(tools.prover, sorted(stated.hypotheses, key=str), names=names)
        for i in PLACES:
            self.c.assume(f"0 < Q{i}", f"Q{i}*L{i} == 1")
        self._signs()
        difference = _difference(tools)
        for i in PLACES:
            parts = {name: f"{name}{i}" for name in "STKHBDLQ"}
            self.c.use(difference, **parts, gap="gap", e="e", tiny="tiny")
        self._order()

    def finish(self, shown: Sequence[Proved]) -> list[Proved]:
        """Without the reciprocals that only the derivation speaks of, and compared with the statement."""
        finished = []
        for found in shown:
            proved = found
            for i in PLACES:
                positive = self.c.known_fact(self.c.atoms(f"0 < L{i}")[0])
                recording = self.tools.prover.recording
                proved = recording.eliminate_reciprocal(proved, f"Q{i}", self.c.poly(f"L{i}"), positive)
            finished.append(proved)
        return compared(finished, self.stated)

    def _signs(self) -> None:
        """Every divisor is positive, and every reciprocal."""
        c, tools = self.c, self.tools
        for i in PLACES:
            if i:
                c.use(tools.transitive, x="0", y=f"x{i - 1}", z=f"x{i}")
            for root, inverse in (("S", "H"), ("T", "K")):
                c.by(f"0 < {root}{i} + e", f"0 <= {root}{i}", "0 < eps")
                c.use(tools.positive_quotient, d=f"{root}{i} + e", p="1", q=f"{inverse}{i}")
            squares = [f"{root}{i}*{root}{i} == radicand*{v} + curvature*x{i}*x{i}" for root, v in _STATES]
            c.by(f"S{i}*S{i} - T{i}*T{i} == gap", *squares, hints=Hints(ladder=((1, 99, 0),)))
            c.by(f"0 < L{i}", f"tiny <= L{i}", "0 < tiny")

    def _order(self) -> None:
        """Roots grow along the cell; reciprocals, and what `K - H` is made of, shrink."""
        c, tools = self.c, self.tools
        shrinks = tools.lemmas("slope_share_shrinks")
        for i, j in _NEIGHBOURS:
            for root, inverse, value in (("S", "H", "v"), ("T", "K", "v_hat")):
                facts = {"c": "0 < curvature", "x": f"0 <= x{i}", "g": f"x{i} <= x{j}"}
                facts |= {f"{n}": f"{root}{n}*{root}{n} == radicand*{value} + curvature*x{n}*x{n}" for n in (i, j)}
                c.collect(f"{root}{i}*{root}{i} <= {root}{j}*{root}{j}", facts, ["c x g", "c g g"])
                c.use(tools.roots, x=f"{root}{i}", y=f"{root}{j}")
                c.by(f"{root}{i} + e <= {root}{j} + e", f"{root}{i} <= {root}{j}")
                c.use(tools.reciprocals, a=f"{root}{i} + e", b=f"{root}{j} + e", i=f"{inverse}{i}", j=f"{inverse}{j}")
            c.by(f"S{i} + T{i} <= S{j} + T{j}", f"S{i} <= S{j}", f"T{i} <= T{j}")
            c.use(tools.transitive, x=f"S{i} + T{i}", y=f"S{j} + T{j}", z=f"L{j}")
            c.use(tools.largest_below, p=f"L{i}", a=f"S{i} + T{i}", b="tiny", z=f"L{j}")
            c.use(tools.reciprocals, a=f"L{i}", b=f"L{j}", i=f"Q{i}", j=f"Q{j}")
        for i in PLACES:
            c.names[f"P{i}"] = c.poly(f"K{i}*H{i}*Q{i}")
            c.names[f"R{i}"] = c.poly(f"H{i}*Q{i}")
            c.use(tools.positive_product, x=f"H{i}", y=f"Q{i}")
            c.use(tools.positive_product, x=f"K{i}", y=f"R{i}")
        for i, j in _NEIGHBOURS:
            ends = {"p0": f"K{i}", "q0": f"H{i}", "r0": f"Q{i}", "p1": f"K{j}", "q1": f"H{j}", "r1": f"Q{j}"}
            c.use(shrinks, p=f"K{i}", q=f"H{i}", r=f"Q{i}", **ends)
