"""Two states at one gradient, and the guard's quantities of them: which is larger, and the signs of all.

`guard.closed_form.make_bound_terms` is run on symbols with its constants as variables, of which only what they are for
is assumed (`CAPS`).
"""

from __future__ import annotations

from typing import Literal

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.context import Context, Stated
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.later import CAPS
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.closed_form import make_bound_terms
from guarded_moments.reference.guard.constants import GuardConstants

_CONSTANTS = GuardConstants(*(Polynomial.variable(name) for name in GuardConstants._fields))
_STATE = ("m", "v", "m_hat", "v_hat")


class TwoStates:
    """One order of the two second moments."""

    def __init__(self, tools: Toolbox, order: Literal["v <= v_hat", "v_hat <= v"]) -> None:
        """Run the guard's source on symbols, and assume what it is about."""
        self.tools = tools
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
        self._order()

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

    def either(
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
