"""The bound of a cell by slopes, as `guard.slopes` computes it: at least `|N|` at every gradient of the cell.

From the low end of the cell to a gradient `x` inside, `V` the reciprocal of the sum of both native roots there and `W`
that of the recovered ones,

    K0 - K == (x - x0) * s_hat,   s_hat = curvature*(x0 + x) * K0*K*W                    (`slope_of_reciprocal`)
    s_hat - s == gap * curvature*(x0 + x) * ((P0*K + H0*P)*W + H0*H*(Q0 + Q)*V*W)      (`slope_difference_splits`)

with `K - H == gap*P` and `P`, `Q` of `derive.cell`.  Every factor shrinks along the cell but `x0 + x`, which grows, so
that the ends of the cell bound the slope of `N`; and a bounded slope bounds `N` (`slope_bounds_chord`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from guarded_moments.proofs.cells import CellStatement
from guarded_moments.proofs.derive.cell import PLACES, Cell
from guarded_moments.proofs.derive.context import DerivationError
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints

_ONE = Polynomial.constant(1)
_LINEAR = Hints(ladder=((1, 99, 0),))
_EQUATIONS = Hints(ladder=((1, 99, 2), (1, 99, 3), (1, 99, 4)))


def derive_by_slopes(tools: Toolbox, stated: CellStatement) -> list[Proved]:
    """Derive the bounds of both signs of the gradient, each of both signs of `N`."""
    return BySlopes(Cell(tools, stated)).run()


class BySlopes:
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
        self._roots()
        self._shares()
        self._slopes()
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

    def _roots(self) -> None:
        """No root is zero, and the reciprocals of sums of roots shrink."""
        c, tools, op = self.c, self.tools, self.op
        c.assume("0 < V1", "V1*(S0 + S1) == 1", "0 < W1", "W1*(T0 + T1) == 1")
        squared = {"c": "0 < k", "x": "0 < x", "r": "0 <= r", "v": "0 <= v", "is": "s*s == r*v + k*x*x", "s": "0 <= s"}
        positive = tools.by_products("0 < s*s", {n: squared[n] for n in ("c", "x", "r", "v", "is")}, "c x x", "r v")
        root = tools.lemma("0 < s", "0 < s*s", "0 <= s", hints=Hints(ladder=((2, 2, 0),)))
        for name, v in (("S", "v"), ("T", "v_hat")):
            c.use(positive, s=f"{name}0", k="curvature", x="x0", r="radicand", v=v)
            c.use(root, s=f"{name}0")
        for i in PLACES:
            for name, inverse in (("S", "V"), ("T", "W")):
                if i:
                    c.by(f"0 < {name}{i}", f"0 < {name}{i - 1}", f"{name}{i - 1} <= {name}{i}")
                if i != 1:
                    c.names[f"{inverse}{i}"] = op.div(_ONE, c.poly(f"{name}0 + {name}{i}"))
                c.by(f"0 < {name}0 + {name}{i}", f"0 < {name}0", f"0 < {name}{i}")
                c.use(tools.positive_quotient, d=f"{name}0 + {name}{i}", p="1", q=f"{inverse}{i}")
            for name, inverse in (("S", "V"), ("T", "W")):
                if i:
                    c.by(f"{name}0 + {name}{i - 1} <= {name}0 + {name}{i}", f"{name}{i - 1} <= {name}{i}")
                    c.use(tools.reciprocals, a=f"{name}0 + {name}{i - 1}", b=f"{name}0 + {name}{i}",
                          i=f"{inverse}{i - 1}", j=f"{inverse}{i}")  # fmt: skip
            self._root_gap(i)

    def _root_gap(self, i: int) -> None:
        """What the source computes for `S - T`: it is that, and `gap*Q`."""
        c, tools, op = self.c, self.tools, self.op
        c.names[f"G{i}"] = op.div(c.poly("gap"), c.poly(f"S{i} + T{i}"))
        c.by(f"0 < S{i} + T{i}", f"0 < S{i}", f"0 < T{i}")
        # The sum of the roots is not zero, so it is not below TINY.
        least = tools.lemma("y <= s", "0 < s", "s*(s - y) >= 0", hints=Hints(ladder=((2, 2, 0),)))
        c.use(least, s=f"S{i} + T{i}", y="tiny")
        c.use(tools.largest_is_second, a="tiny", b=f"S{i} + T{i}", p=f"L{i}")
        c.by(
            f"G{i} == gap*Q{i}",
            f"G{i}*(S{i} + T{i}) == gap",
            f"Q{i}*L{i} == 1",
            f"L{i} == S{i} + T{i}",
            hints=_EQUATIONS,
        )
        c.by(f"gap*Q{i} == S{i} - T{i}", f"S{i}*S{i} - T{i}*T{i} == gap", f"Q{i}*L{i} == 1", f"L{i} == S{i} + T{i}",
             hints=_EQUATIONS)  # fmt: skip

    def _shares(self) -> None:
        """`K0*K*W` and `Y`, which times `gap` is its difference of both states, and that both shrink."""
        c, tools = self.c, self.tools
        shrinks, splits = tools.lemmas("slope_share_shrinks"), tools.lemmas("slope_difference_splits")
        shares = ("K0 K W", "P0 K W", "H0 P W")
        for i in PLACES:
            c.names[f"F{i}"] = c.poly(f"K0*K{i}*W{i}")
            c.names[f"Z{i}"] = c.poly(f"H0*H{i}*V{i}*W{i}")
            c.names[f"Y{i}"] = c.poly(f"P0*K{i}*W{i} + H0*P{i}*W{i} + Z{i}*Q0 + Z{i}*Q{i}")
            for share in ("K0 K", "H0 H", "P0 K", "H0 P"):
                x, y = share.split()
                c.use(tools.positive_product, x=x, y=f"{y}{i}")
            for x, y in ((f"K0*K{i}", f"W{i}"), (f"P0*K{i}", f"W{i}"), (f"H0*P{i}", f"W{i}"), (f"V{i}", f"W{i}"),
                         (f"H0*H{i}", f"V{i}*W{i}"), (f"Z{i}", "Q0"), (f"Z{i}", f"Q{i}")):  # fmt: skip
                c.use(tools.positive_product, x=x, y=y)
            c.by(f"0 <= Y{i}", f"0 < P0*K{i}*W{i}", f"0 < H0*P{i}*W{i}", f"0 < Z{i}*Q0", f"0 < Z{i}*Q{i}")
            # The difference of the shares, as it splits, with each difference as a multiple of gap.
            c.use(splits, H="H0", Hh="K0", K=f"H{i}", Kh=f"K{i}", Q=f"V{i}", Qh=f"W{i}")
            roots = ("V{i}*(S0 + S{i}) == 1", "W{i}*(T0 + T{i}) == 1")
            c.by(
                f"W{i} - V{i} == (S0 + S{i} - T0 - T{i})*(V{i}*W{i})",
                *(text.format(i=i) for text in roots),
                hints=_EQUATIONS,
            )
            facts = ("W - V == (S + s - T - t)*Z", "gap*Q == S - T", "gap*R == s - t")
            gaps = tools.lemma("W - V == gap*(Q + R)*Z", *facts, hints=_EQUATIONS)
            c.use(
                gaps,
                W=f"W{i}",
                V=f"V{i}",
                gap="gap",
                Q="Q0",
                R=f"Q{i}",
                Z=f"V{i}*W{i}",
                S="S0",
                s=f"S{i}",
                T="T0",
                t=f"T{i}",
            )
            put = tools.lemma(
                "A == gap*(p*K*W + H*q*W + H*h*Z*Q + H*h*Z*R)",
                "A == (d*K + H*f)*W + H*h*y", "d == gap*p", "f == gap*q", "y == gap*(Q + R)*Z", hints=_EQUATIONS,
            )  # fmt: skip
            c.use(put, A=f"K0*K{i}*W{i} - H0*H{i}*V{i}", p="P0", K=f"K{i}", W=f"W{i}", H="H0", q=f"P{i}", h=f"H{i}",
                  Z=f"V{i}*W{i}", Q="Q0", R=f"Q{i}", d="K0 - H0", f=f"K{i} - H{i}", y=f"W{i} - V{i}",
                  gap="gap")  # fmt: skip
        less = tools.by_products(
            "x*y <= a*b", {"x": "x <= a", "y": "y <= b", "a": "0 < a", "y0": "0 < y"}, "x y0", "y a"
        )
        for i, j in ((0, 1), (1, 2)):
            for share in shares:
                x, y, z = share.split()
                ends = {"p0": x, "q0": f"{y}{i}", "r0": f"{z}{i}", "p1": x, "q1": f"{y}{j}", "r1": f"{z}{j}"}
                c.use(shrinks, p=x, q=f"{y}{i}", r=f"{z}{i}", **ends)
            c.use(less, x=f"V{j}", a=f"V{i}", y=f"W{j}", b=f"W{i}")
            c.use(tools.scaled, x=f"H{j}", y=f"H{i}", c="H0")
            c.use(less, x=f"H0*H{j}", a=f"H0*H{i}", y=f"V{j}*W{j}", b=f"V{i}*W{i}")
            c.use(tools.scaled, x=f"Z{j}", y=f"Z{i}", c="Q0")
            c.use(less, x=f"Z{j}", a=f"Z{i}", y=f"Q{j}", b=f"Q{i}")
            parts = ("P0*K{n}*W{n}", "H0*P{n}*W{n}", "Z{n}*Q0", "Z{n}*Q{n}")
            c.by(f"Y{j} <= Y{i}", *(f"{part.format(n=j)} <= {part.format(n=i)}" for part in parts))

    def _slopes(self) -> None:
        """The slopes at a gradient inside lie between the source's `SlopeRange`."""
        c, tools = self.c, self.tools
        c.names |= {"cnear": c.poly("curvature*(x0 + x0)"), "cfar": c.poly("curvature*(x0 + x2)")}
        c.names["cmid"] = c.poly("curvature*(x0 + x1)")
        c.by("0 < x0 + x0", "0 < x0")
        c.use(tools.positive_product, x="curvature", y="x0 + x0")
        for i, j, small, large in ((0, 1, "cnear", "cmid"), (1, 2, "cmid", "cfar")):
            c.by(f"x0 + x{i} <= x0 + x{j}", f"x{i} <= x{j}")
            c.use(tools.scaled, x=f"x0 + x{i}", y=f"x0 + x{j}", c="curvature")
            c.by(f"0 < {large}", f"0 < {small}", f"{small} <= {large}")
        between = tools.by_products(
            "x*y <= a*b", {"x": "x <= a", "y": "y <= b", "a": "0 < a", "y0": "0 <= y"}, "x y0", "y a"
        )
        for share in ("F", "Y"):
            if share == "F":
                for i in PLACES:
                    c.use(tools.lemma("0 <= x", "0 < x"), x=f"F{i}")
            c.names |= {f"{share}steep": c.poly(f"cfar*{share}0"), f"{share}flat": c.poly(f"cnear*{share}2")}
            c.names[f"{share}mid"] = c.poly(f"cmid*{share}1")
            c.use(between, x="cmid", a="cfar", y=f"{share}1", b=f"{share}0")
            c.use(between, x="cnear", a="cmid", y=f"{share}2", b=f"{share}1")
            c.use(tools.product, x="cnear", y=f"{share}2")
            c.use(tools.product, x="cfar", y=f"{share}0")
        # What the slopes are.
        c.use(tools.lemmas("slope_of_reciprocal"), a="x0", x="x1", c="curvature", Y="radicand*v_hat", e="e",
              S="T0", T="T1", H="K0", K="K1")  # fmt: skip
        c.use(tools.lemmas("slope_of_reciprocal"), a="x0", x="x1", c="curvature", Y="radicand*v", e="e",
              S="S0", T="S1", H="H0", K="H1")  # fmt: skip
        divided = tools.lemma("d == p*W", "d*s == p", "W*s == 1", hints=_EQUATIONS)
        c.use(divided, d="K0 - K1", s="T0 + T1", p="(x1 - x0)*curvature*(x0 + x1)*K0*K1", W="W1")
        c.use(divided, d="H0 - H1", s="S0 + S1", p="(x1 - x0)*curvature*(x0 + x1)*H0*H1", W="V1")
        c.names |= {"t": c.poly("x1 - x0"), "width": c.poly("x2 - x0")}
        c.by("0 <= t", "x0 <= x1")
        c.by("t <= width", "x1 <= x2")
        # The source computes the difference of the slopes from what it has for each gap.
        for i, name, factor in ((0, "steep", "cfar"), (2, "flat", "cnear")):
            c.names[f"D{name}"] = c.poly(f"{factor}*((D0*K{i} + H0*D{i} + H0*H{i}*((G0 + G{i})*V{i}))*W{i})")
            parts = [("D0", f"K{i}", "P0"), (f"D{i}", "H0", f"P{i}")]
            parts += [(f"G{j}", f"H0*H{i}*V{i}", f"Q{j}") for j in (0, i)]
            times = tools.lemma("x*z == y*z", "x == y")
            for value, beside, share in parts:
                c.use(times, x=value, y=f"gap*{share}", z=f"{factor}*W{i}*{beside}")
            equal = [f"{x}*({factor}*W{i}*{y}) == gap*{share}*({factor}*W{i}*{y})" for x, y, share in parts]
            c.by(f"D{name} == gap*({factor}*Y{i})", *equal, hints=_LINEAR)

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
