"""The third term: bounds on how far two reciprocals are apart at a gradient, times the gradient.

`S*S == A*A + x*x` and `T*T == B*B + x*x` are the radicands at a gradient with `x = q*|g|`; those at zero are `A <= B`,
and `HA*(A + e) == 1` and so on.  With `gap = B*B - A*A` and `t*t <= 27`:

    HS - HT <= HA - HB              2*x*(HS - HT) <= gap*HA*HB          16*e*A*x*(HS - HT) <= gap
    x*(HS - HT) <= (B - A)*HB       t*A*A*x*(HS - HT) <= gap

Each comes from the lemma of its name, in which the denominators are cleared, by dividing.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints


class ThirdTerms:
    """The derivation; `bounds` has its five theorems, in the order of the module's text."""

    def __init__(self, tools: Toolbox) -> None:
        """Derive all five."""
        self.tools = tools
        c = self.c = Context(tools.prover, "0 <= A", "A <= B", "0 <= x", "0 <= S", "0 <= T", "0 < e")
        c.assume("0 <= t", "t*t <= 27", "S*S == A*A + x*x", "T*T == B*B + x*x", "gap == B*B - A*A")
        for name in "ABST":
            c.assume(f"0 < H{name}", f"H{name}*({name} + e) == 1")
        self._order()
        c.by("(T - S)*HS*HT == HS - HT", "HS*(S + e) == 1", "HT*(T + e) == 1")
        c.by("(B - A)*HA*HB == HA - HB", "HA*(A + e) == 1", "HB*(B + e) == 1")
        self.bounds = [
            self._monotone(),
            self._root_gap(),
            self._radicand_gap(),
            self._stationary(),
            self._epsilon(),
        ]

    def _order(self) -> None:
        c, lemmas = self.c, self.tools.lemmas
        c.by("0 <= B", "0 <= A", "A <= B")
        c.collect("0 <= gap", {"A": "0 <= A", "AB": "A <= B", "gap": "gap == B*B - A*A"}, ["A AB", "AB AB"])
        c.by("T*T == S*S + gap", "S*S == A*A + x*x", "T*T == B*B + x*x", "gap == B*B - A*A")
        c.by("B*B == A*A + gap", "gap == B*B - A*A")
        c.by("T*T - S*S == B*B - A*A", "S*S == A*A + x*x", "T*T == B*B + x*x")
        c.use(lemmas("roots_are_ordered"), d="gap")
        c.by("0 <= A*A", hints=Hints(squares=(c.poly("A"),)))
        c.use(lemmas("root_dominates_gradient"), W="A*A")
        c.use(lemmas("square_root_gap_decreases"), s1="A", s2="S", t1="B", t2="T")

    def _monotone(self) -> Proved:
        self.c.use(self.tools.lemmas("reciprocal_gap_decreases"), s1="A", s2="S", t1="B", t2="T")
        self._reciprocals("T - S", "B - A", "AB")
        self._difference("1", "(B - A)*HA*HB")
        (shown,) = self.c.by("HS - HT <= HA - HB", "HS - HT <= (B - A)*HA*HB", "(B - A)*HA*HB == HA - HB")
        return shown

    def _root_gap(self) -> Proved:
        self.c.use(self.tools.lemmas("third_term_root_gap"))
        self._reciprocals("x*(T - S)", "B - A", "B")
        return self._difference("x", "(B - A)*HB")

    def _radicand_gap(self) -> Proved:
        self.c.use(self.tools.lemmas("third_term_radicand_gap"), d="gap")
        self._reciprocals("2*x*(T - S)", "gap", "AB")
        return self._difference("2*x", "gap*HA*HB")

    def _stationary(self) -> Proved:
        """The largest of `x*(T - S)/S**3` is where `2*x*x == A*A`."""
        c, tools = self.c, self.tools
        for name in ("A", "x"):
            c.use(tools.product, x=name, y=name)
        c.use(tools.lemmas("third_term_stationary_factor"), W="A*A", y="x*x")
        c.use(tools.lemma("X**3 == Y**3", "X == Y"), X="S*S", Y="A*A + x*x")
        square = tools.lemma("0 <= p*p", hints=Hints(squares=(c.poly("p"),)))
        c.use(square, p="A*A*x")
        c.use(tools.scaled, x="t*t", y="27", c="(A*A*x)*(A*A*x)")
        facts = ("t*t*(A*A*x)*(A*A*x) <= 27*(A*A*x)*(A*A*x)", "27*(A*A)*(A*A)*(x*x) <= 4*(A*A + x*x)**3")
        linear = Hints(ladder=((1, 99, 0),))
        c.by("(t*A*A*x)*(t*A*A*x) <= 4*S**6", *facts, "(S*S)**3 == (A*A + x*x)**3", hints=linear)
        c.use(tools.lemmas("third_term_stationary"), d="gap", p="t*A*A*x")
        self._reciprocals("t*A*A*x*(T - S)", "gap", "")
        return self._difference("t*A*A*x", "gap")

    def _epsilon(self) -> Proved:
        c, lemmas = self.c, self.tools.lemmas
        c.use(lemmas("third_term_epsilon_factor"))
        c.by("2*A*x <= S*S", "2*A*x <= A*A + x*x", "S*S == A*A + x*x")
        c.use(lemmas("third_term_epsilon"), d="gap")
        self._reciprocals("16*e*A*x*(T - S)", "gap", "")
        return self._difference("16*e*A*x", "gap")

    def _reciprocals(self, left: str, right: str, ends: str) -> None:
        """From `left*(ends + e) <= right*(S + e)*(T + e)` to `left*HS*HT <= right*(H of the ends)`."""
        c, tools = self.c, self.tools
        small, large = c.poly(left), c.poly(right) * c.poly("(S + e)*(T + e)")
        for index, end in enumerate(ends):
            rest = c.poly("1")
            for other in ends[index + 1 :]:
                rest *= c.poly(f"{other} + e")
            c.use(tools.divided, x=small * rest, y=large, d=f"{end} + e", i=f"H{end}")
            large *= c.poly(f"H{end}")
        result = c.poly(right)
        for end in ends:
            result *= c.poly(f"H{end}")
        c.use(tools.cancelled, x=small, y=result * c.poly("S + e"), d="T + e", i="HT")
        c.use(tools.cancelled, x=small * c.poly("HT"), y=result, d="S + e", i="HS")

    def _difference(self, factor: str, bound: str) -> Proved:
        """From `factor*(T - S)*HS*HT <= bound` to `factor*(HS - HT) <= bound`."""
        replaced = self.tools.lemma("k*z <= y", "k*w <= y", "w == z")
        (shown,) = self.c.use(replaced, k=factor, w="(T - S)*HS*HT", z="HS - HT", y=bound)
        return shown
