"""The two exact updates: how far apart they can be, as the guard's own source bounds it.

    step*|M_hat*H_hat - M*H| <= step*(first_moment + second_moment + gradient)

The native state's `v` may be the smaller or the larger one; both cases are derived and joined.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.reciprocal_gap import ThirdTerms
from guarded_moments.proofs.derive.third_term import ThirdTerm
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved


def either_order(tools: Toolbox, one_order: type[Difference]) -> list[Proved]:
    """Derive both signs of the difference, whichever `v` is larger."""
    bounds = ThirdTerms(tools).bounds
    up, down = (one_order(tools, bounds, order).run() for order in ("v <= v_hat", "v_hat <= v"))
    larger = Polynomial.variable("v_hat") - Polynomial.variable("v")
    return [tools.prover.recording.cases(one, other, larger) for one, other in zip(up, down, strict=True)]


class Difference(ThirdTerm):
    """One order of the two second moments."""

    def run(self) -> list[Proved]:
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
        self._below_without_gradient()
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

    def _below_without_gradient(self) -> None:
        """The recovered reciprocal is at most what it is at `g = 0`."""
        c, tools = self.c, self.tools
        facts = {
            "A": "A2*A2 == radicand*v_hat",
            "S": "S2*S2 == radicand*v_hat + curvature*ag*ag",
            "q": "qc*qc == curvature",
        }
        c.collect("A2*A2 <= S2*S2", {**facts, "x": "0 <= x"}, ["x x"])
        c.use(tools.roots, x="A2", y="S2")
        c.by("A2 + eps <= S2 + eps", "A2 <= S2")
        c.use(tools.reciprocals, a="A2 + eps", b="S2 + eps", i="R2", j="H2")
