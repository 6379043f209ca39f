"""The theorem about the first update: two trajectories and the difference of the exact updates, put together.

What was introduced on the way (the magnitude of the gradient, the roots and reciprocals of the exact updates, the root
of the curvature) is eliminated, so that the theorem has the hypotheses of the statement and no others.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.both_updates import BothUpdates
from guarded_moments.proofs.derive.difference import Difference, either_order
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.derive.trajectory import derive_trajectory
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import Statement
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.constants import GuardConstants


class FirstUpdate:
    """Derives the theorem of any family; the difference of the exact updates is derived once."""

    def __init__(self, tools: Toolbox, difference: list[Proved] | None = None) -> None:
        """Derive what all families share, unless the difference is given."""
        self.tools = tools
        self.difference = difference or either_order(tools, Difference)
        self._trajectories: dict[str, list[Proved]] = {}

    def trajectory(self, stated: Statement) -> list[Proved]:
        """The native trajectory of a family, derived once; the recovered one is an instance of it."""
        name = stated.family.name
        if name not in self._trajectories:
            self._trajectories[name] = derive_trajectory(self.tools, stated)
        return self._trajectories[name]

    def derive(self, stated: Statement) -> list[Proved]:
        """Derive the theorem of one family.

        Raises:
            DerivationError: it needs a hypothesis that the statement does not have, or concludes something else.
        """
        return compared(self.compose(stated).run(self.trajectory(stated)), stated)

    def compose(self, stated: Statement) -> Composition:
        """Both trajectories and the difference."""
        return Composition(self.tools, stated, self.difference)


class Composition(BothUpdates):
    """The context in which both trajectories and the difference meet."""

    def __init__(self, tools: Toolbox, stated: Statement, difference: list[Proved]) -> None:
        """Assume the statement's hypotheses, and roots and reciprocals over the reals."""
        super().__init__(tools, stated, stated.hypotheses, ExactArithmetic(stated.guard))
        self.difference = difference
        c = self.c
        c.assume("0 <= ag", "ag*ag == g*g")
        for index in (1, 2):
            c.assume(f"0 <= S{index}", f"S{index}*S{index} == rad*v{index} + curv*ag*ag")
            c.assume(f"0 < H{index}", f"H{index}*(S{index} + eps) == 1")

    def run(self, native: list[Proved]) -> list[Proved]:
        """The theorem, from the native trajectory."""
        c, stated = self.c, self.stated
        self.constants()
        self._stationary()
        self.trajectories(native, self.for_every_gradient())
        fields = {name: getattr(stated.constants, name) for name in GuardConstants._fields}
        c.use(self.difference, **fields, **self.raised(), m="m1", v="v1", m_hat="m2", v_hat="v2", t="t")
        return [self.eliminated(one) for one in self.apart(stated.bound)]

    def raised(self) -> dict[str, Polynomial]:
        """What else the difference is about: nothing."""
        return {}

    def _stationary(self) -> None:
        """That the cap of the third term at the worst gradient is what it must be."""
        c, tools = self.c, self.tools
        positive = tools.lemma("0 < s", "0 <= s", "3 <= s*s")
        c.use(positive, s="s3")
        c.use(tools.positive_quotient, d="s3", p="9", q="t")
        stationary = tools.lemma(
            "t*t <= 27", "3 <= s*s", "t*s == 9", hints=Hints(ladder=((2, 4, 2),), squares=(c.poly("t"),))
        )
        c.use(stationary, s="s3", t="t")
        c.use(tools.nonnegative_quotient, d="t", p="gap_cap", q="root_cap")

    def eliminated(self, proved: Proved) -> Proved:
        """Without what was introduced on the way."""
        c, recording = self.c, self.tools.prover.recording
        for index in (1, 2):
            (positive,) = c.by(f"0 < S{index} + eps", f"0 <= S{index}", "0 < eps")
            proved = recording.eliminate_reciprocal(proved, f"H{index}", c.poly(f"S{index} + eps"), positive)
            facts = {"rad": "0 <= rad", "curv": "0 <= curv", "v": f"0 <= v{index}", "g": "0 <= ag"}
            (exists,) = c.collect(f"0 <= rad*v{index} + curv*ag*ag", facts, ["rad v", "curv g g"])
            proved = recording.eliminate_root(proved, f"S{index}", c.poly(f"rad*v{index} + curv*ag*ag"), exists)
        (square,) = self.tools.lemma("0 <= g*g", hints=Hints(squares=(c.poly("g"),)))
        proved = recording.eliminate_root(proved, "ag", c.poly("g*g"), square)
        return recording.eliminate_root(proved, "qc", c.poly("curv"), c.known_fact(c.atoms("0 <= curv")[0]))
