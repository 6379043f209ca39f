"""The two exact updates: how far apart they can be, as the guard's own source bounds it.

    step*|M_hat*H_hat - M*H| <= step*(first_moment + second_moment + gradient)

`guard.closed_form.make_bound_terms` is run on symbols with its constants as variables, of which only what they are for
is assumed (`CAPS`).  The native state's `v` may be the smaller or the larger one; both cases are derived and joined.
"""

from __future__ import annotations

from typing import Literal

from guarded_moments.proofs.derive.context import Context, Stated
from guarded_moments.proofs.derive.reciprocal_gap import ThirdTerms
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.symbolic import Definitions, ExactArithmetic
from guarded_moments.reference.guard.closed_form import make_bound_terms
from guarded_moments.reference.guard.constants import GuardConstants

#: What the guard's constants must be good for; `qc` is the root of the curvature, `t` at most `3*sqrt(3)`.
CAPS = (
    "0 <= w",
    "0 <= complement",
    "0 < eps",
    "0 <= step",
    "0 <= radicand",
    "0 <= qc",
    "qc*qc == curvature",
    "0 <= gap_cap",
    "1 <= gap_cap*qc",
    "2*radicand_cap == gap_cap",
    "0 < t",
    "t*t <= 27",
    "root_cap*t == gap_cap",
    "16*eps*eps_cap == gap_cap",
    "0 <= root_cap",
    "0 <= eps_cap",
    "0 < tiny",
    "8*tiny <= eps",
    "3*tiny <= eps*eps",
)
_CONSTANTS = GuardConstants(*(Polynomial.variable(name) for name in GuardConstants._fields))
_STATE = ("m", "v", "m_hat", "v_hat")


def derive_difference(tools: Toolbox) -> list[Proved]:
    """Derive both signs of the difference, whichever `v` is larger."""
    bounds = ThirdTerms(tools).bounds
    up, down = (_Case(tools, bounds, order).run() for order in ("v <= v_hat", "v_hat <= v"))
    larger = Polynomial.variable("v_hat") - Polynomial.variable("v")
    return [tools.prover.recording.cases(one, other, larger) for one, other in zip(up, down, strict=True)]


class _Case:
    """One order of the two second moments."""

    def __init__(self, tools: Toolbox, bounds: list[Proved], order: Literal["v <= v_hat", "v_hat <= v"]) -> None:
        self.tools, self.third = tools, bounds
        self.up = order == "v <= v_hat"
        guard = Definitions("guard_")
        arithmetic = ExactArithmetic(guard)
        state = [Polynomial.variable(name) for name in _STATE]
        terms = make_bound_terms(arithmetic)(_CONSTANTS, *state)
        m, v, m_hat, v_hat = state
        k, tiny = _CONSTANTS, Polynomial.variable("tiny")
        roots = [arithmetic.sqrt(k.radicand * value) for value in (v, v_hat)]
        one = Polynomial.constant(1)
        reciprocals = [arithmetic.div(one, root + k.eps) for root in roots]
        names = {"A1": roots[0], "A2": roots[1], "R1": reciprocals[0], "R2": reciprocals[1]}
        names |= {"low": arithmetic.minimum(*roots), "high": arithmetic.maximum(*roots)}
        names |= {"HA": arithmetic.maximum(*reciprocals), "HB": arithmetic.minimum(*reciprocals)}
        names |= {
            "dv": arithmetic.distance(v_hat, v),
            "dm": arithmetic.distance(m_hat, m),
            "am": arithmetic.absolute(m),
        }
        names["gap"] = k.radicand * names["dv"]
        names["total"] = arithmetic.maximum(names["low"] + names["high"], tiny)
        names["rg"] = arithmetic.div(names["gap"], names["total"])
        names["low2"] = arithmetic.maximum(names["low"] * names["low"], tiny)
        names["low1"] = arithmetic.maximum(names["low"], tiny)
        names["by_root"] = arithmetic.div(names["gap"] * k.root_cap, names["low2"])
        names["by_eps"] = arithmetic.div(names["gap"] * k.eps_cap, names["low1"])
        names |= terms._asdict()
        self.arithmetic = arithmetic
        c = self.c = Context(tools.prover, *CAPS, *guard.atoms, names=names)
        c.assume("0 <= v", "0 <= v_hat", order, "(A1 + A2)*(A1 + A2 - tiny) >= 0", "0 <= ag", "ag*ag == g*g")
        c.assume("g <= gradient_bound", "-g <= gradient_bound")
        for index, value in ((1, "v"), (2, "v_hat")):
            c.assume(f"0 <= S{index}", f"S{index}*S{index} == radicand*{value} + curvature*ag*ag")
            c.assume(f"0 < H{index}", f"H{index}*(S{index} + eps) == 1")

    def run(self) -> list[Proved]:
        self._order()
        self._reciprocal_gap()
        self._third_term()
        return self._sum()

    def _order(self) -> None:
        """Which of the guard's least and largest is which, and the signs of all."""
        c, tools = self.c, self.tools
        small, large = (1, 2) if self.up else (2, 1)
        v_small, v_large = ("v", "v_hat") if self.up else ("v_hat", "v")
        c.use(tools.same_magnitude, x=f"{v_large} - {v_small}", a="dv")
        squares = {"order": f"{v_small} <= {v_large}", "r": "0 <= radicand", "A1": "A1*A1 == radicand*v"}
        squares["A2"] = "A2*A2 == radicand*v_hat"
        c.collect(f"A{small}*A{small} <= A{large}*A{large}", squares, ["order r"])
        c.use(tools.roots, x=f"A{small}", y=f"A{large}")
        for index in (1, 2):
            c.by(f"0 < A{index} + eps", f"0 <= A{index}", "0 < eps")
            c.use(tools.positive_quotient, d=f"A{index} + eps", p="1", q=f"R{index}")
        c.by(f"A{small} + eps <= A{large} + eps", f"A{small} <= A{large}")
        c.use(tools.reciprocals, a=f"A{small} + eps", b=f"A{large} + eps", i=f"R{small}", j=f"R{large}")
        c.use(tools.least_is_first, p="low", a=f"A{small}", b=f"A{large}")
        c.use(tools.largest_is_second, p="high", a=f"A{small}", b=f"A{large}")
        c.use(tools.largest_is_second, p="HA", a=f"R{large}", b=f"R{small}")
        c.use(tools.least_is_first, p="HB", a=f"R{large}", b=f"R{small}")
        positive = tools.lemma("0 < x", "x == y", "0 < y")
        same = tools.lemma("x*(y + e) == 1", "x == X", "y == Y", "X*(Y + e) == 1")
        for end, root, index in (("HA", "low", small), ("HB", "high", large)):
            c.use(positive, x=end, y=f"R{index}")
            c.use(same, x=end, X=f"R{index}", y=root, Y=f"A{index}", e="eps")
        c.by("0 <= low", f"low == A{small}", f"0 <= A{small}")
        c.by("low <= high", f"low == A{small}", f"high == A{large}", f"A{small} <= A{large}")
        c.use(tools.product, x="radicand", y="dv")
        c.names |= {
            "S": c.poly(f"S{small}"),
            "T": c.poly(f"S{large}"),
            "HS": c.poly(f"H{small}"),
            "HT": c.poly(f"H{large}"),
        }
        c.names["x"] = c.poly("ag*qc")
        c.use(tools.product, x="ag", y="qc")
        for end, root, value, index in (("S", "low", v_small, small), ("T", "high", v_large, large)):
            squares_of = (
                f"{end}*{end} == radicand*{value} + curvature*ag*ag",
                f"A{index}*A{index} == radicand*{value}",
            )
            more = (f"{root} == A{index}", "qc*qc == curvature")
            c.by(f"{end}*{end} == {root}*{root} + x*x", *squares_of, *more, hints=Hints(ladder=((1, 99, 2),)))
        facts = ("A1*A1 == radicand*v", "A2*A2 == radicand*v_hat", f"low == A{small}", f"high == A{large}")
        c.by("gap == high*high - low*low", *facts, f"dv == {v_large} - {v_small}", hints=Hints(ladder=((1, 99, 1),)))

    def _reciprocal_gap(self) -> None:
        """The five bounds of the lemma, and `B - A <= root_gap`."""
        c, tools = self.c, self.tools
        c.use(
            self.third,
            A="low",
            B="high",
            S="S",
            T="T",
            HA="HA",
            HB="HB",
            HS="HS",
            HT="HT",
            e="eps",
            x="x",
            t="t",
            gap="gap",
        )
        total = ("0 <= low", "low <= high", "gap == high*high - low*low", "(A1 + A2)*(A1 + A2 - tiny) >= 0")
        small, large = (1, 2) if self.up else (2, 1)
        c.by("(low + high)*(low + high - tiny) >= 0", total[3], f"low == A{small}", f"high == A{large}",
             hints=Hints(ladder=((1, 2, 1),)))  # fmt: skip
        c.by("0 < total", "tiny <= total", "0 < tiny")
        self._either("(high - low)*total <= gap", "total", "low + high", {
            "largest": {"gap": total[2]},
            "tiny": {"A": "0 <= low", "AB": "low <= high", "gap": total[2],
                     "no": "(low + high)*(low + high - tiny) >= 0", "least": "low + high <= tiny"},
        }, ["A least", "A A", "no", "AB least"])  # fmt: skip
        c.use(tools.below_quotient, x="high - low", d="total", p="gap", q="rg")
        c.use(tools.nonnegative_quotient, d="total", p="gap", q="rg")
        c.names["D"] = c.poly("HS - HT")
        # The larger root has the smaller reciprocal, so D is not negative.
        c.by("gap == T*T - S*S", "gap == high*high - low*low", "S*S == low*low + x*x", "T*T == high*high + x*x")
        c.by("S*S <= T*T", "gap == T*T - S*S", "0 <= gap")
        c.use(tools.roots, x="S", y="T")
        c.by("S + eps <= T + eps", "S <= T")
        c.by("0 < S + eps", "0 <= S", "0 < eps")
        c.use(tools.reciprocals, a="S + eps", b="T + eps", i="HS", j="HT")
        c.by("0 <= D", "HT <= HS")

    def _either(
        self, goal: str, name: str, first: str, facts: dict[str, dict[str, Stated]], products: list[str]
    ) -> None:
        """Prove a goal about the larger of something and TINY: once for each, joined."""
        c, tools = self.c, self.tools
        something = c.poly(first) - c.poly("tiny")
        proved: list[list[Proved]] = []
        for side, (small, large) in (("largest", ("tiny", first)), ("tiny", (first, "tiny"))):
            inner = Context(tools.prover, names=c.names)
            inner.known = dict(c.known)
            inner.assume(f"{small} <= {large}")
            inner.use(tools.largest_is_second, a=small, b=large, p=name)
            given = {**facts[side], "is": f"{name} == {large}"}
            usable = [p for p in products if all(label in given for label in p.split())]
            proved.append(inner.collect(goal, given, usable))
        for one, other in zip(*proved, strict=True):
            c.add(tools.prover.recording.cases(one, other, something))

    def _third_term(self) -> None:
        """`|g|*D` is at most each of the five, so at most the least of them."""
        c, tools = self.c, self.tools
        bounded = ("0 <= a", "a*a == g*g", "g <= b", "-g <= b")
        magnitude = tools.lemma("a <= b", *bounded, hints=Hints(ladder=((3, 3, 1),)))
        c.use(magnitude, a="ag", b="gradient_bound", g="g")
        products = ["ag*D", "HA*HB", "low*low", "rg*HB", "gap*root_cap", "gap*eps_cap"]
        pairs = [tuple(product.split("*")) for product in products]
        for left, right in [*pairs, ("gap", "HA*HB"), ("rg", "HA*HB"), ("low*low", "ag*D"), ("low", "ag*D")]:
            c.use(tools.product, x=left, y=right)
        c.names["both"] = c.poly("HA*HB")
        c.by("HA - HB == (high - low)*HA*HB", "HA*(low + eps) == 1", "HB*(high + eps) == 1")
        signs = {
            "g": "0 <= ag",
            "D": "0 <= D",
            "both": "0 <= both",
            "rg": "high - low <= rg",
            "rg0": "0 <= rg",
            "HB": "0 < HB",
        }
        more = {"most": "ag <= gradient_bound", "near": "D <= HA - HB", "is": "HA - HB == (high - low)*HA*HB"}
        c.collect("D <= rg*both", signs | more, ["near", "rg both"])
        products = ["g wide", "most wider"]
        c.collect("ag*D <= gradient_bound*(rg*both)", {"g": "0 <= ag", "wide": "D <= rg*both", "most": more["most"],
                  "wider": "0 <= rg*both"}, products)  # fmt: skip
        c.collect("(ag*D)*qc <= rg*HB", signs | {"gap": "x*D <= (high - low)*HB"}, ["gap", "rg HB"])
        c.use(tools.capped, z="ag*D", k="gap_cap", q="qc", y="rg*HB")
        c.by("(2*(ag*D))*qc <= gap*both", "2*x*D <= gap*HA*HB")
        c.use(tools.capped, z="2*(ag*D)", k="gap_cap", q="qc", y="gap*both")
        c.use(tools.split_factor, z="2*(ag*D)", k="gap_cap", y="gap*both", r="radicand_cap", t="2")
        self._by_root()
        self._by_eps()
        op = self.arithmetic
        values = [
            c.poly(text) for text in ("gradient_bound*(rg*both)", "rg*HB*gap_cap", "gap*both*radicand_cap", "by_root")
        ]
        first, second = op.minimum(values[0], values[1]), op.minimum(values[2], values[3])
        c.use(tools.below_least, x="ag*D", a=values[0], b=values[1], p=first)
        c.use(tools.below_least, x="ag*D", a=values[2], b=values[3], p=second)
        c.names["four"] = op.minimum(first, second)
        c.use(tools.below_least, x="ag*D", a=first, b=second, p="four")
        c.names["P"] = op.minimum(c.poly("four"), c.poly("by_eps"))
        c.use(tools.below_least, x="ag*D", a="four", b="by_eps", p="P")

    def _within_eps(self) -> None:
        """`eps*eps*HA*HB <= 1`, so the bound by radicands alone is one that eps gives."""
        c = self.c
        c.by("0 <= high", "0 <= low", "low <= high")
        for end, root in (("HA", "low"), ("HB", "high")):
            c.collect(
                f"{end}*eps <= 1", {"H": f"0 < {end}", "A": f"0 <= {root}", "is": f"{end}*({root} + eps) == 1"}, ["H A"]
            )
        facts = {"A": "HA*eps <= 1", "B": "HB*eps <= 1", "HA": "0 < HA", "HB": "0 < HB", "eps": "0 < eps"}
        c.collect("eps*eps*both <= 1", facts, ["A", "B HA eps", "A HB eps", "B"])
        facts = {"gap": "0 <= gap", "cap": "0 <= gap_cap", "one": "eps*eps*both <= 1", "e": "0 < eps"}
        facts["wide"] = "2*(ag*D) <= gap_cap*(gap*both)"
        c.collect("2*eps*eps*(ag*D) <= gap_cap*gap", facts, ["gap cap one", "wide e e"])

    def _by_root(self) -> None:
        c, tools = self.c, self.tools
        self._within_eps()
        c.by("(t*low*low*(ag*D))*qc <= gap", "t*low*low*x*D <= gap")
        c.use(tools.product, x="t", y="low*low*ag*D")
        c.use(tools.capped, z="t*low*low*(ag*D)", k="gap_cap", q="qc", y="gap")
        c.use(tools.split_factor, z="t*low*low*(ag*D)", k="gap_cap", y="gap", r="root_cap", t="t")
        c.use(tools.factor_removed, x="low*low*(ag*D)", y="gap*root_cap", t="t")
        c.by("t <= 6", "0 < t", "t*t <= 27")
        c.use(tools.split_factor, z="2*eps*eps*(ag*D)", k="gap_cap", y="gap", r="root_cap", t="t")
        self._either("(ag*D)*low2 <= gap*root_cap", "low2", "low*low", {
            "largest": {"root": "low*low*(ag*D) <= gap*root_cap"},
            "tiny": {"eps": "2*eps*eps*(ag*D) <= gap*root_cap*t", "six": "t <= 6",
                     "gap": "0 <= gap*root_cap", "least": "3*tiny <= eps*eps", "D": "0 <= ag*D"},
        }, ["root", "eps", "six gap", "least D"])  # fmt: skip
        c.by("0 < low2", "tiny <= low2", "0 < tiny")
        c.use(tools.below_quotient, x="ag*D", d="low2", p="gap*root_cap", q="by_root")

    def _by_eps(self) -> None:
        c, tools = self.c, self.tools
        c.by("(16*eps*low*(ag*D))*qc <= gap", "16*eps*low*x*D <= gap")
        c.use(tools.product, x="eps", y="low*ag*D")
        c.use(tools.capped, z="16*eps*low*(ag*D)", k="gap_cap", q="qc", y="gap")
        c.use(tools.split_factor, z="16*eps*low*(ag*D)", k="gap_cap", y="gap", r="16*eps", t="eps_cap")
        c.use(tools.factor_removed, x="low*(ag*D)", y="gap*eps_cap", t="16*eps")
        c.use(tools.split_factor, z="2*eps*eps*(ag*D)", k="gap_cap", y="gap", r="16*eps", t="eps_cap")
        c.use(tools.factor_removed, x="eps*(ag*D)", y="8*gap*eps_cap", t="2*eps")
        self._either("(ag*D)*low1 <= gap*eps_cap", "low1", "low", {
            "largest": {"root": "low*(ag*D) <= gap*eps_cap"},
            "tiny": {"eps": "eps*(ag*D) <= 8*gap*eps_cap", "least": "8*tiny <= eps", "D": "0 <= ag*D"},
        }, ["root", "eps", "least D"])  # fmt: skip
        c.by("0 < low1", "tiny <= low1", "0 < tiny")
        c.use(tools.below_quotient, x="ag*D", d="low1", p="gap*eps_cap", q="by_eps")

    def _sum(self) -> list[Proved]:
        """`N = complement*(m_hat - m)*H_hat + M*(H_hat - H)`, term by term."""
        c, tools = self.c, self.tools
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        c.use(magnitude, x="m", a="am")
        c.use(magnitude, x="g", a="ag")
        c.use(magnitude, x="m_hat - m", a="dm")
        c.names["M"] = c.poly("complement*m + w*g")
        for factor, value, bound in (("complement", "m", "am"), ("w", "g", "ag"), ("complement", "m_hat - m", "dm")):
            c.use(tools.scaled_magnitude, x=value, a=bound, c=factor)
        c.use(tools.sum_magnitude, x="complement*m", a="complement*am", y="w*g", b="w*ag")
        # The recovered reciprocal is at most what it is at g = 0.
        facts = {
            "A": "A2*A2 == radicand*v_hat",
            "S": "S2*S2 == radicand*v_hat + curvature*ag*ag",
            "q": "qc*qc == curvature",
        }
        c.collect("A2*A2 <= S2*S2", {**facts, "x": "0 <= x"}, ["x x"])
        c.use(tools.roots, x="A2", y="S2")
        c.by("A2 + eps <= S2 + eps", "A2 <= S2")
        c.use(tools.reciprocals, a="A2 + eps", b="S2 + eps", i="R2", j="H2")
        c.use(tools.own_magnitude, x="H2")
        c.use(tools.own_magnitude, x="D")
        c.use(tools.looser, x="H2", y="H2", z="R2")
        c.use(tools.product_magnitude, x="complement*(m_hat - m)", a="complement*dm", y="H2", b="R2")
        c.use(tools.product_magnitude, x="M", a="complement*am + w*ag", y="D", b="D")
        facts = {"h": "0 <= complement", "m": "0 <= am", "w": "0 <= w", "D": "D <= rg*both", "P": "ag*D <= P"}
        c.collect("(complement*am + w*ag)*D <= complement*am*(rg*both) + w*P", facts, ["h m D", "w P"])
        c.use(tools.looser, x="M*D", y="(complement*am + w*ag)*D", z="complement*am*(rg*both) + w*P")
        sign = "" if not self.up else "-"
        c.use(tools.sum_magnitude, x="complement*(m_hat - m)*H2", a="complement*dm*R2", y=f"{sign}M*D",
              b="complement*am*(rg*both) + w*P")  # fmt: skip
        c.use(tools.own_magnitude, x="step")
        c.names["N"] = c.poly("(complement*m_hat + w*g)*H2 - M*H1")
        return c.use(tools.product_magnitude, x="step", a="step", y="N", b="first_moment + second_moment + gradient")
