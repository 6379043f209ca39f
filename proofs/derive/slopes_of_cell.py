"""The slopes of both reciprocals along a cell, and that the ends of the cell bound them.

From the low end of the cell to a gradient `x` inside, `V` the reciprocal of the sum of both native roots there and `W`
that of the recovered ones,

    K0 - K == (x - x0) * s_hat,   s_hat = curvature*(x0 + x) * K0*K*W                    (`slope_of_reciprocal`)
    s_hat - s == gap * curvature*(x0 + x) * ((P0*K + H0*P)*W + H0*H*(Q0 + Q)*V*W)      (`slope_difference_splits`)

with `K - H == gap*P` and `P`, `Q` of `derive.cell`.  Every factor shrinks along the cell but `x0 + x`, which grows.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.cell import PLACES, Cell
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.search import Hints

_ONE = Polynomial.constant(1)
_LINEAR = Hints(ladder=((1, 99, 0),))
_EQUATIONS = Hints(ladder=((1, 99, 2), (1, 99, 3), (1, 99, 4)))


class Slopes:
    """The slopes of one cell."""

    def __init__(self, cell: Cell) -> None:
        """Derive nothing yet: that is `prepare`."""
        self.cell, self.c, self.tools, self.op, self.stated = cell, cell.c, cell.tools, cell.op, cell.stated

    def prepare(self) -> None:
        """What does not depend on the sign of the gradient."""
        self._roots()
        self._shares()
        self._slopes()

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
