"""The bound of a cell from its ends, as `guard.cells` computes it: at least `|N|` at every gradient of the cell.

    N(g) = shift*K + (pull + w*g)*(K - H)

Both products lie between their values at the ends (`cell_bound_product`).  Towards infinity `g*K <= gap_cap`, because
the recovered root holds the gradient, and with it `g*|K - H|` is at most a multiple of its gap at the low end.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from guarded_moments.proofs.cells import CellStatement
from guarded_moments.proofs.derive.cell import PLACES, Cell
from guarded_moments.proofs.derive.context import Context, DerivationError
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints


def derive_by_ends(tools: Toolbox, stated: CellStatement) -> list[Proved]:
    """Derive the bounds of both signs of the gradient, each of both signs of `N`."""
    return ByEnds(Cell(tools, stated)).run()


def _shrunk(tools: Toolbox) -> list[Proved]:
    """`|s*l| <= a, 0 <= k <= l, 0 < l |- |s*k| <= a`."""
    c = Context(tools.prover, "abs(s*l) <= a", "0 <= k", "k <= l", "0 < l")
    facts = {"up": "s*l <= a", "down": "-s*l <= a", "k": "0 <= k", "less": "k <= l"}
    shown = []
    for value in ("s*k", "-s*k"):
        c.collect(f"({value})*l <= a*l", facts, ["up k", "down k", "up less", "down less"])
        shown += c.use(tools.factor_removed, x=value, y="a", t="l")
    return shown


class ByEnds:
    """The bound of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.c, self.tools, self.op, self.stated = cell, cell.c, cell.tools, cell.op, cell.stated

    def run(self) -> list[Proved]:
        """The bound over the reals, with what the source adds for its rounding."""
        self.prepare()
        shown = [
            one for sign, upper in zip((1, -1), self.stated.uppers, strict=True) for one in self._added(sign, upper)
        ]
        return self.finish(shown)

    def prepare(self) -> None:
        """What does not depend on the sign of the gradient."""
        self.c.assume("0 <= qc", "qc*qc == curvature")
        self._first()
        self._tail()

    def finish(self, shown: Iterable[Proved]) -> list[Proved]:
        """Without the root of the curvature, which only the derivation speaks of, and compared with the statement."""
        recording, curvature = self.tools.prover.recording, self.c.known_fact(self.c.atoms("0 <= curvature")[0])
        return self.cell.finish(
            [recording.eliminate_root(one, "qc", self.c.poly("curvature"), curvature) for one in shown]
        )

    def _first(self) -> None:
        """`shift*K` lies between its values at the ends, in whichever order they are."""
        c, op = self.c, self.op
        c.names |= {"f0": c.poly("shift*K0"), "f2": c.poly("shift*K2")}
        c.names["fmost"], c.names["fleast"] = (pick(c.poly("f0"), c.poly("f2")) for pick in (op.maximum, op.minimum))
        ends = {"X": "shift", "x0": "shift", "x1": "shift", "z": "K1", "z0": "K2", "z1": "K0"}
        c.use(self.tools.lemmas("cell_bound_product"), **ends, lo="fleast", hi="fmost")

    def _tail(self) -> None:
        """Three magnitudes that hold to infinity: of `shift*K`, `pull*(K - H)` and `w*g*(K - H)`."""
        c, tools, op, k = self.c, self.tools, self.op, self.stated.constants
        c.names |= {"af": op.absolute(c.poly("f0")), "ap": op.absolute(c.poly("pull"))}
        c.names["ad"] = op.absolute(c.poly("D0"))
        c.names["held"] = op.div(k.w * k.gap_cap * c.poly("ad"), c.poly("K0"))
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        for value, bound in (("f0", "af"), ("pull", "ap"), ("D0", "ad")):
            c.use(magnitude, x=value, a=bound)
        same = tools.lemma("abs(y) <= a", "abs(x) <= a", "x == y")
        c.use(same, x="D0", y="gap*P0", a="ad")
        shrunk = _shrunk(tools)
        c.use(shrunk, s="shift", k="K1", l="K0", a="af")
        c.use(shrunk, s="gap", k="P1", l="P0", a="ad")
        c.use(tools.lemma("abs(y) <= a", "abs(x) <= a", "y == x"), x="gap*P1", y="K1 - H1", a="ad")
        c.use(tools.product_magnitude, x="pull", a="ap", y="K1 - H1", b="ad")
        # g*K <= gap_cap: the recovered root holds the gradient.
        c.by("1*1 <= (gap_cap*qc)*(gap_cap*qc)", "1 <= gap_cap*gap_cap*curvature", "qc*qc == curvature",
             hints=Hints(ladder=((1, 99, 2),)))  # fmt: skip
        c.use(tools.product, x="gap_cap", y="qc")
        c.use(tools.roots, x="1", y="gap_cap*qc")
        c.use(tools.product, x="x1", y="qc")
        facts = {"T": "T1*T1 == radicand*v_hat + curvature*x1*x1", "q": "qc*qc == curvature"}
        c.collect("(x1*qc)*(x1*qc) <= T1*T1", facts | {"r": "0 <= radicand", "v": "0 <= v_hat"}, ["r v"])
        c.use(tools.roots, x="x1*qc", y="T1")
        facts = {"root": "x1*qc <= T1", "K": "0 < K1", "eps": "0 < eps", "is": "K1*(T1 + e) == 1"}
        c.collect("(x1*K1)*qc <= 1", facts, ["K root", "K eps"])
        c.use(tools.product, x="x1", y="K1")
        c.use(tools.capped, z="x1*K1", k="gap_cap", q="qc", y="1")
        c.use(tools.own_magnitude, x="x1*K1")
        c.use(tools.looser, x="x1*K1", y="x1*K1", z="gap_cap")
        for i in (0, 1):
            c.names[f"R{i}"] = c.poly(f"H{i}*Q{i}")
        facts = {"x": "x <= a", "y": "y <= b", "a": "0 < a", "y0": "0 < y"}
        c.use(tools.by_products("x*y <= a*b", facts, "x y0", "y a"), x="H1", a="H0", y="Q1", b="Q0")
        c.use(shrunk, s="gap*K0", k="R1", l="R0", a="ad")
        c.use(tools.product_magnitude, x="gap*K0*R1", a="ad", y="x1*K1", b="gap_cap")
        c.use(tools.scaled_magnitude, x="gap*K0*R1*x1*K1", a="ad*gap_cap", c="w")
        one = tools.lemma("abs(y*z) <= a", "abs(p*z) <= a", "y == p")
        c.use(tools.lemma("z*y == z*p", "y == p"), y="K1 - H1", p="gap*P1", z="w*x1")
        c.use(one, y="w*x1*(K1 - H1)", p="w*x1*(gap*P1)", z="K0", a="w*gap_cap*ad")
        for sign in ("", "-"):
            c.use(tools.below_quotient, x=f"{sign}w*x1*(K1 - H1)", d="K0", p="w*gap_cap*ad", q="held")

    def bounded(self, sign: int) -> None:
        """Two bounds of `N` at `sign*g`: `extent` of the ends, and `held_up` that holds to infinity."""
        c, tools, op = self.c, self.tools, self.op
        c.names |= {"near": c.poly("w*x0"), "far": c.poly("w*x2"), "along": c.poly("w*x1").scaled(Fraction(sign))}
        c.names |= {"E0": c.poly("pull") + c.poly("near").scaled(Fraction(sign))}
        c.names |= {"E2": c.poly("pull") + c.poly("far").scaled(Fraction(sign))}
        c.names["N"] = c.poly("shift*K1 + (pull + along)*(K1 - H1)")
        corners = [c.poly(f"{x}*{z}") for x in ("E0", "E2") for z in ("D0", "D2")]
        for pick, name in ((op.maximum, "most"), (op.minimum, "least")):
            pairs = [pick(corners[0], corners[1]), pick(corners[2], corners[3])]
            c.names[name] = pick(*pairs)
            for pair, two in zip(pairs, (corners[:2], corners[2:]), strict=True):
                for corner in two:
                    small, large = (corner, c.poly(name)) if name == "most" else (c.poly(name), corner)
                    c.use(tools.transitive, x=small, y=pair, z=large)
        self._second(sign)
        c.names["above"] = c.poly("fmost + most")
        c.names["below"] = c.poly("fleast + least")
        c.names["extent"] = op.maximum(c.poly("above"), -c.poly("below"))
        for end in ("above <= extent", "-below <= extent"):
            c.known_fact(c.atoms(end)[0])
        # The two limits of the sum.
        c.by("N <= above", "shift*K1 <= fmost", "(pull + along)*(K1 - H1) <= most")
        c.by("below <= N", "fleast <= shift*K1", "least <= (pull + along)*(K1 - H1)")
        c.use(
            tools.lemma("abs(n) <= x", "n <= a", "b <= n", "a <= x", "-b <= x"), n="N", a="above", b="below", x="extent"
        )
        total = tools.lemma("abs(x + y + z) <= a + b + d", "abs(x) <= a", "abs(y) <= b", "abs(z) <= d")
        c.use(total, x="shift*K1", y="pull*(K1 - H1)", z="along*(K1 - H1)", a="af", b="ap*ad", d="held")
        c.names["held_up"] = c.poly("af + ap*ad + held")

    def _added(self, sign: int, upper: Polynomial) -> list[Proved]:
        """Both bounds with the rounding that the source adds; the smaller of them."""
        c, tools, op = self.c, self.tools, self.op
        self.bounded(sign)
        c.names["rounding"] = self._rounding()
        c.use(tools.lemma("abs(n) <= x + r", "abs(n) <= x", "0 <= r"), n="N", x="extent", r="rounding")
        inflation = Polynomial.constant(1 + self._relative_error)
        c.use(tools.lemma("abs(n) <= k*x", "abs(n) <= x", "1 <= k"), n="N", x="held_up", k=inflation)
        c.names["tail"] = inflation * c.poly("held_up")
        c.names["ended"] = c.poly("extent + rounding")
        if op.minimum(c.poly("ended"), c.poly("tail")) != upper:
            raise DerivationError(f"the source computes another bound than {c.poly('ended')} or {c.poly('tail')}")
        return [
            *c.use(tools.below_least, x="N", a="ended", b="tail", p=upper),
            *c.use(tools.below_least, x="-N", a="ended", b="tail", p=upper),
        ]

    def _second(self, sign: int) -> None:
        """`(pull + w*g)*(K - H)` lies between the products of the ends, whichever sign `gap` has."""
        c, tools = self.c, self.tools
        small, large = ("E0", "E2") if sign > 0 else ("E2", "E0")
        for i, j in ((0, 1), (1, 2)):
            c.use(tools.scaled, x=f"x{i}", y=f"x{j}", c="w")
        c.names["X"] = c.poly("pull + along")
        c.by(f"{small} <= X", "w*x0 <= w*x1", "w*x1 <= w*x2")
        c.by(f"X <= {large}", "w*x0 <= w*x1", "w*x1 <= w*x2")
        product = tools.lemmas("cell_bound_product")
        proved: list[list[Proved]] = []
        for way in ("", "-"):
            inner = Context(tools.prover, names=c.names)
            inner.known = dict(c.known)
            inner.assume(f"0 <= {way}gap")
            for i in PLACES:
                inner.use(tools.product, x=f"{way}gap", y=f"P{i}")
            for i, j in ((1, 0), (2, 1)):
                inner.use(tools.scaled, x=f"P{i}", y=f"P{j}", c=f"{way}gap")
            for i, name in ((0, "D0"), (1, "(K1 - H1)"), (2, "D2")):
                is_it = f"{name} == gap*P{i}"
                inner.by(f"0 <= {way}{name}", is_it, f"0 <= {way}gap*P{i}")
            for i, j, a, b in ((1, 0, "(K1 - H1)", "D0"), (2, 1, "D2", "(K1 - H1)")):
                inner.by(f"{way}{a} <= {way}{b}", f"{way}gap*P{i} <= {way}gap*P{j}",
                         f"{a} == gap*P{i}", f"{b} == gap*P{j}")  # fmt: skip
            x0, x1 = (small, large) if not way else (f"-({large})", f"-({small})")
            inner.use(product, X=f"{way}X", x0=x0, x1=x1, z=f"{way}(K1 - H1)", z0=f"{way}D2", z1=f"{way}D0",
                      lo="least", hi="most")  # fmt: skip
            made = ("X*(K1 - H1) <= most", "least <= X*(K1 - H1)")
            proved.append([inner.known_fact(inner.atoms(one)[0]) for one in made])
        for one, other in zip(*proved, strict=True):
            c.add(tools.prover.recording.cases(one, other, c.poly("gap")))

    @property
    def _relative_error(self) -> Fraction:
        """What the source adds for its rounding, relative to the magnitudes: one less than what inflates the tail."""
        _, tail = self.stated.definitions.operands(self.stated.uppers[0])
        return tail.terms[0][1] - 1

    def _rounding(self) -> Polynomial:
        """The rounding that the source adds, shown not to be negative."""
        c, tools = self.c, self.tools
        c.use(tools.product, x="w", y="x2")
        for left, right in (("ap", "ad"), ("far", "ad")):
            c.use(tools.product, x=left, y=right)
        rate = Polynomial.constant(self._relative_error)
        c.by("0 <= af + ap*ad + far*ad", "0 <= af", "0 <= ap*ad", "0 <= far*ad")
        c.use(tools.lemma("0 <= k*x", "0 <= x", "0 <= k"), k=rate, x="af + ap*ad + far*ad")
        return rate * c.poly("af + ap*ad + far*ad")
