"""Every update at once: the deviation of any is at most the bound of `reference.horizon.unbounded`.

The native state's `v` may be the smaller or the larger one; both cases are derived and joined.  The terms of the bound
are derived with the least epsilon; those of an update, which has a larger one, are smaller.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.reciprocal_gap import ThirdTerms
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.third_term import ThirdTerm
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.later import Every
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved


def derive_every(tools: Toolbox, stated: Every) -> list[Proved]:
    """Derive both signs of the deviation, whichever `v` is larger.

    Raises:
        DerivationError: it needs a hypothesis that the statement does not have, or concludes something else.
    """
    bounds = ThirdTerms(tools).bounds
    up, down = (_Case(tools, bounds, order).run() for order in ("v <= v_hat", "v_hat <= v"))
    larger = Polynomial.variable("v_hat") - Polynomial.variable("v")
    joined = [tools.prover.recording.cases(one, other, larger) for one, other in zip(up, down, strict=True)]
    return compared(joined, stated)


class _Case(ThirdTerm):
    """One order of the two second moments."""

    def run(self) -> list[Proved]:
        """`N = rj*complement*(m_hat - m)*L2 + (rj*complement*m + x)*(L2 - L1)`, term by term."""
        c, tools = self.c, self.tools
        c.assume("0 <= rj", "0 <= z", "rj*rj + z*z == 1", "abs(x0) <= z*w*ag", "0 <= stepj", "stepj <= step")
        c.assume("eps <= epsj")
        for index in (1, 2):
            c.assume(f"0 < L{index}", f"L{index}*(S{index} + epsj) == 1")
        self._reciprocals()
        self._parts()
        c.names["X"], c.names["Y"] = c.poly("first_moment + second_moment"), c.poly("gradient")
        c.names["B"] = self.arithmetic.sqrt(c.poly("X*X + Y*Y"))
        c.assume("0 <= B", "B*B == X*X + Y*Y")
        c.use(tools.lemmas("parts_on_a_circle"), r="rj", z="z", X="X", Y="Y", B="B")
        c.names["N"] = c.poly("(rj*complement*m_hat + x0)*L2 - (rj*complement*m + x0)*L1")
        c.use(tools.looser, x="N", y="rj*X + z*Y", z="B")
        c.use(tools.lemma("abs(s) <= t", "0 <= s", "s <= t"), s="stepj", t="step")
        shown = c.use(tools.product_magnitude, x="stepj", a="step", y="N", b="B")
        return [self._eliminated(one) for one in shown]

    def _reciprocals(self) -> None:
        """`L2 <= R2`, and the gap `G` of the update's reciprocals is at most `D`."""
        c, tools = self.c, self.tools
        small, large = (1, 2) if self.up else (2, 1)
        c.names |= {"LS": c.poly(f"L{small}"), "LT": c.poly(f"L{large}")}
        c.names["G"] = c.poly("LS - LT")
        facts = {"A": "A2*A2 == radicand*v_hat", "q": "qc*qc == curvature"}
        facts["S"] = "S2*S2 == radicand*v_hat + curvature*ag*ag"
        c.collect("A2*A2 <= S2*S2", {**facts, "x": "0 <= x"}, ["x x"])
        c.use(tools.roots, x="A2", y="S2")
        c.by("A2 + eps <= S2 + eps", "A2 <= S2")
        c.use(tools.reciprocals, a="A2 + eps", b="S2 + eps", i="R2", j="H2")
        for index in (1, 2):
            c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
            c.by(f"S{index} + eps <= S{index} + epsj", "eps <= epsj")
        c.use(tools.reciprocals, a="S2 + eps", b="S2 + epsj", i="H2", j="L2")
        c.use(tools.transitive, x="L2", y="H2", z="R2")
        c.use(tools.lemmas("gap_falls_with_epsilon"), S="S", T="T", e="eps", k="epsj", H="HS", I="HT", J="LS", L="LT")
        c.by("0 < S + epsj", "0 < S + eps", "eps <= epsj")
        c.by("S + epsj <= T + epsj", "S <= T")
        c.use(tools.reciprocals, a="S + epsj", b="T + epsj", i="LS", j="LT")
        c.by("0 <= G", "LT <= LS")

    def _parts(self) -> None:
        """`|N| <= rj*(first_moment + second_moment) + z*gradient`."""
        c, tools = self.c, self.tools
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        c.use(magnitude, x="m", a="am")
        c.use(magnitude, x="m_hat - m", a="dm")
        for one, other in (("complement", "rj"), ("z", "w"), ("z*w", "ag")):
            c.use(tools.product, x=one, y=other)
        for value, bound in (("m", "am"), ("m_hat - m", "dm")):
            c.use(tools.scaled_magnitude, x=value, a=bound, c="complement*rj")
        for value in ("L2", "G"):
            c.by(f"0 <= {value}", f"0 < {value}" if value == "L2" else "0 <= G")
            c.use(tools.own_magnitude, x=value)
        c.use(tools.looser, x="L2", y="L2", z="R2")
        c.use(tools.product_magnitude, x="(m_hat - m)*(complement*rj)", a="dm*(complement*rj)", y="L2", b="R2")
        sign = "" if not self.up else "-"
        c.use(tools.sum_magnitude, x="m*(complement*rj)", a="am*(complement*rj)", y="x0", b="z*w*ag")
        c.use(tools.product_magnitude, x="m*(complement*rj) + x0", a="am*(complement*rj) + z*w*ag", y="G", b="G")
        facts = {"h": "0 <= complement", "m": "0 <= am", "w": "0 <= w", "z": "0 <= z", "r": "0 <= rj", "g": "0 <= ag"}
        facts |= {"less": "G <= D", "D": "D <= rg*both", "P": "ag*D <= P"}
        goal = "(am*(complement*rj) + z*w*ag)*G <= complement*rj*am*(rg*both) + z*w*P"
        c.collect(goal, facts, ["h m r less", "h m r D", "z w g less", "z w P"])
        moment = "m*(complement*rj) + x0"
        c.use(tools.looser, x=f"({moment})*G", y="(am*(complement*rj) + z*w*ag)*G",
              z="complement*rj*am*(rg*both) + z*w*P")  # fmt: skip
        c.use(tools.sum_magnitude, x="(m_hat - m)*(complement*rj)*L2", a="dm*(complement*rj)*R2",
              y=f"{sign}({moment})*G", b="complement*rj*am*(rg*both) + z*w*P")  # fmt: skip

    def _eliminated(self, proved: Proved) -> Proved:
        """Without the reciprocals that have the least epsilon."""
        c, recording = self.c, self.tools.prover.recording
        for index in (1, 2):
            (positive,) = c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
            proved = recording.eliminate_reciprocal(proved, f"H{index}", c.poly(f"S{index} + eps"), positive)
        # What stands for the gradients is not negative, so within the bound from below as well.
        proved = recording.instantiate(proved, {"g": Polynomial.variable("ag"), "x0": Polynomial.variable("x")})
        (below,) = self.tools.lemma("-ag <= gradient_bound", "0 <= ag", "ag <= gradient_bound")
        return recording.cut(below, proved)
