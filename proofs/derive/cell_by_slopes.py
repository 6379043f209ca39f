"""The bound of a cell by slopes, as `guard.slopes` computes it: at least `|N|` at every gradient of the cell.

    N(x) == N(x0) + (x - x0) * slope,   slope = w*(K - H) - shift*s_hat - (pull + w*x0)*(s_hat - s)

The ends of the cell bound the slopes of the reciprocals (`derive.slopes_of_cell`), so they bound that of `N`; and a
bounded slope bounds `N` (`slope_bounds_chord`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from guarded_moments.proofs.cells import CellStatement
from guarded_moments.proofs.derive.cell import Cell
from guarded_moments.proofs.derive.context import DerivationError
from guarded_moments.proofs.derive.slopes_of_cell import Slopes
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints

_LINEAR = Hints(ladder=((1, 99, 0),))
_EQUATIONS = Hints(ladder=((1, 99, 2), (1, 99, 3), (1, 99, 4)))


def derive_by_slopes(tools: Toolbox, stated: CellStatement) -> list[Proved]:
    """Derive the bounds of both signs of the gradient, each of both signs of `N`."""
    return BySlopes(Cell(tools, stated)).run()


class BySlopes(Slopes):
    """The bound of one cell."""

    def run(self) -> list[Proved]:
        """The bound over the reals, with what the source adds for its rounding."""
        self.prepare()
        shown = [
            one for sign, upper in zip((1, -1), self.stated.uppers, strict=True) for one in self._added(sign, upper)
        ]
        return self.finish(shown)

    def prepare(self) -> None:
        """What does not depend on the sign of the gradient."""
        super().prepare()
        self._magnitudes()

    def finish(self, shown: Iterable[Proved]) -> list[Proved]:
        """Without the reciprocals that only the derivation speaks of, and compared with the statement."""
        c, recording = self.c, self.tools.prover.recording
        finished = []
        for proved in shown:
            one = proved
            for name, root in (("V1", "S"), ("W1", "T")):
                divisor = f"{root}0 + {root}1"
                positive = c.known_fact(c.atoms(f"0 < {divisor}")[0])
                one = recording.eliminate_reciprocal(one, name, c.poly(divisor), positive)
            finished.append(one)
        return self.cell.finish(finished)

    def _magnitudes(self) -> None:
        """The magnitudes that the source's rounding is relative to: none is negative."""
        c, tools, op = self.c, self.tools, self.op
        c.names |= {"ash": op.absolute(c.poly("shift")), "ap": op.absolute(c.poly("pull"))}
        c.names |= {"ad": op.absolute(c.poly("D0")), "asteep": op.absolute(c.poly("Dsteep"))}
        c.use(tools.product, x="w", y="x0")
        c.names["moment"] = c.poly("ap + w*x0")
        c.by("0 <= moment", "0 <= ap", "0 <= w*x0")
        c.by("0 <= width", "0 <= t", "t <= width")
        for x, y in (("ash", "Fsteep"), ("moment", "asteep"), ("w", "ad"), ("ash", "K0"), ("moment", "ad")):
            c.use(tools.product, x=x, y=y)
        c.by(
            "0 <= ash*Fsteep + moment*asteep + w*ad",
            "0 <= ash*Fsteep",
            "0 <= moment*asteep",
            "0 <= w*ad",
            hints=_LINEAR,
        )
        c.use(tools.product, x="width", y="ash*Fsteep + moment*asteep + w*ad")
        c.names["size"] = c.poly("ash*K0 + moment*ad + width*(ash*Fsteep + moment*asteep + w*ad)")
        c.by(
            "0 <= size",
            "0 <= ash*K0",
            "0 <= moment*ad",
            "0 <= width*(ash*Fsteep + moment*asteep + w*ad)",
            hints=_LINEAR,
        )

    def bounded(self, sign: int) -> None:
        """A bound of `N` at `sign*g`, named `extent`."""
        c, tools, op = self.c, self.tools, self.op
        product = tools.lemmas("cell_bound_product")
        c.names["X0"] = c.poly("pull") + c.poly("w*x0").scaled(Fraction(sign))
        c.names |= {"steep": c.poly("shift*Fsteep"), "flat": c.poly("shift*Fflat")}
        c.names |= {
            "fall": op.maximum(c.poly("steep"), c.poly("flat")),
            "rise": op.minimum(c.poly("steep"), c.poly("flat")),
        }
        c.names |= {"near": c.poly("w*D0"), "far": c.poly("w*D2")}
        c.names |= {
            "largest": op.maximum(c.poly("near"), c.poly("far")),
            "lowest": op.minimum(c.poly("near"), c.poly("far")),
        }
        c.names |= {"p": c.poly("X0*Dsteep"), "q": c.poly("X0*Dflat")}
        c.names |= {"pqmost": op.maximum(c.poly("p"), c.poly("q")), "pqleast": op.minimum(c.poly("p"), c.poly("q"))}
        c.use(product, X="shift", x0="shift", x1="shift", z="Fmid", z0="Fflat", z1="Fsteep", lo="rise", hi="fall")
        scaled = tools.lemma("x*y == x*g*z", "y == g*z", hints=_EQUATIONS)
        ends = (("X0", "Dsteep", "Ysteep"), ("X0", "Dflat", "Yflat"), ("w", "D0", "P0"), ("w", "D2", "P2"))
        for x, y, z in ends:
            c.use(scaled, x=x, y=y, g="gap", z=z)
        same = tools.lemma("l <= y and y <= h", "l <= x", "x <= h", "x == y")
        for x, y, z in ends:
            low, high = ("pqleast", "pqmost") if x == "X0" else ("lowest", "largest")
            c.use(same, l=low, h=high, x=f"{x}*{y}", y=f"{x}*gap*{z}")
        c.use(
            product, X="X0*gap", x0="X0*gap", x1="X0*gap", z="Ymid", z0="Yflat", z1="Ysteep", lo="pqleast", hi="pqmost"
        )
        c.use(product, X="w*gap", x0="w*gap", x1="w*gap", z="P1", z0="P2", z1="P0", lo="lowest", hi="largest")
        c.names["gained"] = c.poly("w*gap*P1").scaled(Fraction(sign))
        c.names["slope"] = c.poly("gained - shift*Fmid - X0*gap*Ymid")
        if sign > 0:
            c.names |= {"most": c.poly("largest - rise - pqleast"), "least": c.poly("lowest - fall - pqmost")}
        else:
            c.names |= {"most": c.poly("-lowest - rise - pqleast"), "least": c.poly("-largest - fall - pqmost")}
        ranges = ("w*gap*P1 <= largest", "lowest <= w*gap*P1", "rise <= shift*Fmid", "shift*Fmid <= fall",
                  "pqleast <= X0*gap*Ymid", "X0*gap*Ymid <= pqmost")  # fmt: skip
        sums = tools.lemma(
            "L - F - Q <= G - s - y and G - s - y <= H - R - P",
            "L <= G", "G <= H", "R <= s", "s <= F", "P <= y", "y <= Q", hints=_LINEAR,
        )  # fmt: skip
        low, high = ("lowest", "largest") if sign > 0 else ("-largest", "-lowest")
        c.by(f"{low} <= gained", *ranges[:2], hints=_LINEAR)
        c.by(f"gained <= {high}", *ranges[:2], hints=_LINEAR)
        c.use(
            sums,
            L=low,
            H=high,
            G="gained",
            R="rise",
            F="fall",
            s="shift*Fmid",
            P="pqleast",
            Q="pqmost",
            y="X0*gap*Ymid",
        )
        self._followed(sign)

    def _followed(self, sign: int) -> None:
        """`N` is its value at the low end, followed along the slope that is bounded."""
        c, tools, op = self.c, self.tools, self.op
        zero = Polynomial()
        c.names |= {"T": op.maximum(c.poly("most"), zero), "B": op.minimum(c.poly("least"), zero)}
        c.names["start"] = c.poly("shift*K0 + X0*D0")
        c.use(tools.transitive, x="slope", y="most", z="T")
        c.use(tools.transitive, x="B", y="least", z="slope")
        c.use(tools.lemmas("slope_bounds_chord"), N0="start", t="t", B="slope", W="width", L="B", T="T")
        c.names |= {"above": c.poly("start + width*T"), "below": c.poly("start + width*B")}
        c.names["extent"] = op.maximum(c.poly("above"), -c.poly("below"))
        # N is the start and the slope along the chord.
        c.names["N"] = c.poly("shift*K1") + c.poly("pull*(K1 - H1)") + c.poly("w*x1*(K1 - H1)").scaled(Fraction(sign))
        moved = tools.lemma(
            "d - D == (y - x)*(m*g*Y)",
            "K - k == (x - y)*m*F", "H - h == (x - y)*m*A", "d == k - h", "D == K - H", "F - A == g*Y",
            hints=_EQUATIONS,
        )  # fmt: skip
        chord = tools.lemma(
            "s*k + p*d + o*x*d == s*K + (p + o*y)*D + (x - y)*(o*g*P - s*(m*F) - (p + o*y)*g*(m*Y))",
            "K - k == (x - y)*m*F", "d - D == (y - x)*(m*g*Y)", "d == g*P", hints=_EQUATIONS,
        )  # fmt: skip
        c.by("D0 == K0 - H0", "D0 == gap*P0", "K0 - H0 == gap*P0")
        values = {"k": "K1", "h": "H1", "d": "K1 - H1", "x": "x1", "K": "K0", "H": "H0", "D": "D0", "y": "x0"}
        values |= {"m": "curvature*(x0 + x1)", "F": "F1", "A": "H0*H1*V1", "g": "gap", "Y": "Y1"}
        c.use(moved, **values)
        weight = Polynomial.variable("w").scaled(Fraction(sign))
        c.use(chord, **values, s="shift", p="pull", o=weight, P="P1")
        equal = tools.lemma("l <= n and n <= h", "n == s", "l <= s", "s <= h")
        c.use(equal, n="N", s="start + t*slope", l="below", h="above")
        c.use(
            tools.lemma("abs(n) <= x", "n <= a", "b <= n", "a <= x", "-b <= x"), n="N", a="above", b="below", x="extent"
        )

    def _added(self, sign: int, upper: Polynomial) -> list[Proved]:
        """The bound with the rounding that the source adds."""
        c, tools = self.c, self.tools
        self.bounded(sign)
        added = upper - c.poly("extent")
        rate = added.terms[0][1] / c.poly("size").terms[0][1]
        if added != Polynomial.constant(rate) * c.poly("size"):
            raise DerivationError(f"the source adds {added}, no multiple of {c.poly('size')}")
        c.use(tools.lemma("0 <= k*x", "0 <= x", "0 <= k"), k=Polynomial.constant(rate), x="size")
        return c.use(tools.lemma("abs(n) <= x + r", "abs(n) <= x", "0 <= r"), n="N", x="extent", r=added)
