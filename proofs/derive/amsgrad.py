"""amsgrad: where both updates divide by the root of the larger of `v'` and one `v_max`, the same bound holds.

Over the reals, and over the square of the bias correction, `Y = max(top, q)` stands in the place of
`q = radicand*v + curvature*g*g`, of both states with the same `top`.  Each reciprocal `J` is then at most what it was,
`H`, and the two are no further apart: where `top` is below both `q` they are the same as without it, where it is above
both they are equal, and between the smaller `q` is raised towards the larger one.  All that the guard bounds is bounded
by its terms for `H`, so it is for `J`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.difference import Difference, either_order
from guarded_moments.proofs.derive.first_update import Composition, FirstUpdate
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import Statement


class FirstUpdateWithAmsgrad(FirstUpdate):
    """Derives the theorem of any family with amsgrad."""

    def __init__(self, tools: Toolbox) -> None:
        """Derive what all families share."""
        super().__init__(tools, either_order(tools, _RaisedDifference))

    def compose(self, stated: Statement) -> Composition:
        """Both trajectories and the difference."""
        return _RaisedComposition(self.tools, stated, self.difference)


class _RaisedDifference(Difference):
    """One order of the two second moments; `J` takes the place of `H`."""

    def _below_without_gradient(self) -> None:
        super()._below_without_gradient()
        c, tools = self.c, self.tools
        c.assume("0 <= top")
        for index, v in ((1, "v"), (2, "v_hat")):
            c.names[f"q{index}"] = c.poly(f"radicand*{v} + curvature*ag*ag")
            c.assume(f"0 <= T{index}", f"T{index}*T{index} == Y{index}", f"0 < J{index}")
            c.assume(f"J{index}*(T{index} + eps) == 1", *larger(index))
            lower_reciprocal(c, tools, index)
        ends = ("low", "high") if self.up else ("high", "low")
        for name in ("T", "J", "Y", "q", "H", "S"):
            c.names |= {f"{name}_{end}": c.poly(f"{name}{index}") for index, end in enumerate(ends, 1)}
        self._ordered("v <= v_hat" if self.up else "v_hat <= v")
        self._no_further_apart()
        gap = {"g": "0 <= ag", "near": "J_low - J_high <= D", "P": "ag*D <= P"}
        c.collect("ag*(J_low - J_high) <= P", gap, ["g near", "P"])
        c.use(tools.transitive, x="J_low - J_high", y="D", z="rg*both")
        c.use(tools.transitive, x="J2", y="H2", z="R2")
        c.names |= {"H1": c.poly("J1"), "H2": c.poly("J2"), "D": c.poly("J_low - J_high")}

    def _ordered(self, order: str) -> None:
        """The larger `q` has the larger `Y`, the larger root and the smaller reciprocal."""
        c, tools = self.c, self.tools
        c.collect("q_low <= q_high", {"order": order, "r": "0 <= radicand"}, ["order r"])
        c.use(tools.transitive, x="q_low", y="q_high", z="Y_high")
        c.use(tools.largest_below, a="top", b="q_low", p="Y_low", z="Y_high")
        c.by("T_low*T_low <= T_high*T_high", "Y_low <= Y_high", "T_low*T_low == Y_low", "T_high*T_high == Y_high")
        c.use(tools.roots, x="T_low", y="T_high")
        c.by("0 < T_low + eps", "0 <= T_low", "0 < eps")
        c.by("T_low + eps <= T_high + eps", "T_low <= T_high")
        c.use(tools.reciprocals, a="T_low + eps", b="T_high + eps", i="J_low", j="J_high")
        c.by("0 <= J_low - J_high", "J_high <= J_low")

    def _no_further_apart(self) -> None:
        """`J_low - J_high <= D`: `top` is at most the larger `q`, or at least."""
        shown = []
        for beyond in (False, True):
            c, tools = Context(self.tools.prover, names=self.c.names), self.tools
            c.known = dict(self.c.known)
            if beyond:  # both roots are that of `top`
                c.assume("q_high <= top")
                c.use(tools.transitive, x="q_low", y="q_high", z="top")
                for end in ("low", "high"):
                    c.use(tools.largest_is_second, a=f"q_{end}", b="top", p=f"Y_{end}")
                equal = ("T_high*T_high == T_low*T_low", "T_high*T_high == Y_high", "T_low*T_low == Y_low")
                c.by(*equal, "Y_high == top", "Y_low == top")
                self._same_root(c, "T_low", "J_low")
                shown.append(c.by("J_low - J_high <= D", "J_low <= J_high", "0 <= D"))
            else:  # the larger root is what it was
                c.assume("top <= q_high")
                c.use(tools.largest_is_second, a="top", b="q_high", p="Y_high")
                equal = ("T_high*T_high == S_high*S_high", "T_high*T_high == Y_high", "S_high*S_high == q_high")
                c.by(*equal, "Y_high == q_high")
                self._same_root(c, "S_high", "H_high")
                shown.append(c.by("J_low - J_high <= D", "J_low <= H_low", "H_high <= J_high"))
        below, above = shown
        where = self.c.poly("q_high - top")
        for one, other in zip(below, above, strict=True):
            self.c.add(self.tools.prover.recording.cases(one, other, where))

    def _same_root(self, c: Context, root: str, reciprocal: str) -> None:
        """Of a root equal to the larger one with amsgrad: its reciprocal is at most that one's."""
        c.use(self.tools.same_magnitude, a="T_high", x=root)
        c.by("0 < T_high + eps", "0 <= T_high", "0 < eps")
        c.by(f"T_high + eps <= {root} + eps", f"T_high == {root}")
        c.use(self.tools.reciprocals, a="T_high + eps", b=f"{root} + eps", i="J_high", j=reciprocal)


class _RaisedComposition(Composition):
    """The context in which both trajectories and the difference meet."""

    def __init__(self, tools: Toolbox, stated: Statement, difference: list[Proved]) -> None:
        super().__init__(tools, stated, difference)
        c = self.c
        c.assume("0 < per_square", "per_square*(b*b) == 1")
        c.names["top"] = c.poly("v_max*per_square")
        for index in (1, 2):
            c.names[f"q{index}"] = c.poly(f"rad*v{index} + curv*ag*ag")
            c.assume(f"0 <= T{index}", f"T{index}*T{index} == Y{index}", f"0 < J{index}")
            c.assume(f"J{index}*(T{index} + eps) == 1", *larger(index))

    def constants(self) -> None:
        """And of `top`, which both states share."""
        super().constants()
        c = self.c
        c.use(self.tools.product, x="v_max", y="per_square")
        c.by("top*b*b == v_max", "per_square*(b*b) == 1", hints=Hints(ladder=((1, 99, 1), (1, 99, 2))))

    def for_every_gradient(self) -> list[dict[str, Polynomial]]:
        """Each reciprocal is at most what it is without amsgrad."""
        bounds = super().for_every_gradient()
        c, tools = self.c, self.tools
        for index in (1, 2):
            lower_reciprocal(c, tools, index)
            c.use(tools.transitive, x=f"J{index}", y=f"H{index}", z=f"R{index}")
            facts = {"w": "0 <= w", "g": "0 <= ag", "near": f"J{index} <= H{index}"}
            facts["share"] = f"w*ag*H{index} <= share_of_g"
            c.collect(f"w*ag*J{index} <= share_of_g", facts, ["w g near", "share"])
        return bounds

    def trajectories(self, native: list[Proved], bounds: Sequence[Mapping[str, Polynomial]]) -> None:
        """Both, at the roots with amsgrad."""
        c = self.c
        of = [{**one, "Y": c.poly(f"Y{index}"), "top": c.poly("top")} for index, one in enumerate(bounds, 1)]
        plain = {name: c.poly(name) for name in ("S1", "S2", "H1", "H2")}
        c.names |= {"S1": c.poly("T1"), "S2": c.poly("T2"), "H1": c.poly("J1"), "H2": c.poly("J2")}
        super().trajectories(native, of)
        c.names |= plain

    def raised(self) -> dict[str, Polynomial]:
        """Of what both reciprocals are those of the larger."""
        return {"top": self.c.poly("top")}

    def eliminated(self, proved: Proved) -> Proved:
        """And what stands for the larger of `top` and either `q`."""
        c, recording = self.c, self.tools.prover.recording
        for index in (1, 2):
            (positive,) = c.by(f"0 < T{index} + eps", f"0 <= T{index}", "0 < eps")
            proved = recording.eliminate_reciprocal(proved, f"J{index}", c.poly(f"T{index} + eps"), positive)
            (exists,) = c.use(self.tools.transitive, x="0", y="top", z=f"Y{index}")
            proved = recording.eliminate_root(proved, f"T{index}", c.poly(f"Y{index}"), exists)
            of = [recording.instantiate(proved, {f"Y{index}": c.poly(name)}) for name in ("top", f"q{index}")]
            proved = recording.cases(of[0], of[1], c.poly(f"top - q{index}"))
        (positive,) = c.use(self.tools.positive_product, x="b", y="b")
        proved = recording.eliminate_reciprocal(proved, "per_square", c.poly("b*b"), positive)
        return super().eliminated(proved)


def larger(index: int) -> tuple[str, str, str]:
    """What `Y` of a state is."""
    y, q = f"Y{index}", f"q{index}"
    return f"top <= {y}", f"{q} <= {y}", f"({y} - top)*({y} - {q}) == 0"


def lower_reciprocal(c: Context, tools: Toolbox, index: int) -> None:
    """`J <= H` of one state."""
    c.by(f"S{index}*S{index} <= T{index}*T{index}", f"S{index}*S{index} == q{index}",
         f"T{index}*T{index} == Y{index}", f"q{index} <= Y{index}")  # fmt: skip
    c.use(tools.roots, x=f"S{index}", y=f"T{index}")
    c.by(f"S{index} + eps <= T{index} + eps", f"S{index} <= T{index}")
    c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
    c.use(tools.reciprocals, a=f"S{index} + eps", b=f"T{index} + eps", i=f"H{index}", j=f"J{index}")
