"""The third term of the guard: `|g|*|H_hat - H|` is at most each of its five bounds, so at most the least of them."""

from __future__ import annotations

from typing import Literal

from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.derive.two_states import TwoStates
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints


class ThirdTerm(TwoStates):
    """The bounds of one order of the two second moments."""

    def __init__(self, tools: Toolbox, bounds: list[Proved], order: Literal["v <= v_hat", "v_hat <= v"]) -> None:
        """Start from the five bounds of the lemmas."""
        super().__init__(tools, order)
        self.third = bounds
        self._reciprocal_gap()
        self._third_term()

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
        self.either("(high - low)*total <= gap", "total", "low + high", {
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
        self.either("(ag*D)*low2 <= gap*root_cap", "low2", "low*low", {
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
        self.either("(ag*D)*low1 <= gap*eps_cap", "low1", "low", {
            "largest": {"root": "low*(ag*D) <= gap*eps_cap"},
            "tiny": {"eps": "eps*(ag*D) <= 8*gap*eps_cap", "least": "8*tiny <= eps", "D": "0 <= ag*D"},
        }, ["root", "eps", "least D"])  # fmt: skip
        c.by("0 < low1", "tiny <= low1", "0 < tiny")
        c.use(tools.below_quotient, x="ag*D", d="low1", p="gap*eps_cap", q="by_eps")
