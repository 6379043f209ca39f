"""What is evaluated from below at one gradient is at most the magnitude of `N` there: see `derive.cell_evaluation`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cell_evaluation import EvaluatedCell
from guarded_moments.proofs.derive.cell import Cell
from guarded_moments.proofs.derive.cell_evaluation import Evaluated
from guarded_moments.proofs.derive.context import DerivationError
from guarded_moments.proofs.derive.evaluation import Pair, held_constants
from guarded_moments.proofs.derive.signed_evaluation import Near, rate
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.reference.guard.cells import make_end, make_lowers, make_terms


def derive_evaluated_at_gradient(tools: Toolbox, stated: EvaluatedCell) -> list[Proved]:
    """Derive what `guard.cells` evaluates from below, of both signs of the gradient."""
    return _AtGradient(tools, stated, _Magnitudes).run()


class _Magnitudes:
    """The magnitudes of what `N` is a sum of, at the gradient."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def prepare(self) -> None:
        """Name them, and what `K - H` is computed as."""
        c, op = self.cell.c, self.cell.op
        c.names |= {"f1": c.poly("shift*K1")}
        c.names |= {"af": op.absolute(c.poly("f1")), "ap": op.absolute(c.poly("pull")), "ad": op.absolute(c.poly("D1"))}
        c.by("D1 == K1 - H1", "D1 == gap*(K1*H1*Q1)", "K1 - H1 == gap*(K1*H1*Q1)", hints=_EQUATIONS)

    def bounded(self, sign: int) -> None:
        """Nothing: there is no bound over the reals to derive."""

    def finish(self, shown: Iterable[Proved]) -> list[Proved]:
        """Compared with the statement."""
        return self.cell.finish(list(shown))


class _AtGradient(Evaluated):
    """The evaluation at one gradient."""

    def run(self) -> list[Proved]:
        """Run the source on pairs, and compare what comes out with what is stated."""
        c, tools = self.c, self.tools
        self.magnitudes({"f1": "af", "pull": "ap", "D1": "ad"}, {"f1": "sm", "pull": "sp", "D1": "sv"})
        c.use(tools.scaled, x="sv*D1", y="ad", c="w*x1")
        self.widen("sv*D1*w*x1", "ad*w*x1")
        shown = []
        for sign, lower, computed in zip((1, -1), self._lowers(), self.stated.uppers, strict=True):
            if lower.computed != computed:
                raise DerivationError(f"the source computes {lower.computed}, not {computed}")
            shown += [self._unsigned(one) for one in self._below(sign, lower)]
        return self.bound.finish(shown)

    def _lowers(self) -> tuple[Near, Near]:
        c, op = self.plain, self._operations()
        constants: Any = held_constants(self.tools, c, ("eps", "curvature"))
        g = self.stated.exact.at[1].g
        m, v, m_hat, v_hat = self._states(op)
        terms = make_terms(op)(constants, m, v, m_hat, v_hat)
        end = make_end(op)(constants, v, v_hat, terms.gap, Pair(g, g, 0, positive=False))
        lowers: tuple[Near, Near] = make_lowers(op)(constants, terms.shift, terms.pull, end)
        return lowers

    def _below(self, sign: int, lower: Near) -> list[Proved]:
        """The allowance that is taken off is at least what all of it may err by."""
        c, tools = self.c, self.tools
        turn = "+" if sign > 0 else "-"
        summed = c.poly(f"shift*K1 + pull*D1 {turn} w*x1*D1")
        size, taken = self.op.exact.absolute(summed), self.op.exact.absolute(summed) - lower.exact
        self._shared(lower, taken)
        enough = tools.lemma("f <= a", "abs(f - a + r) <= z", "z <= r")
        c.use(enough, f=lower.computed, a=size, r=taken, z=rate(lower.roundings) * lower.magnitude)
        # What is summed is N, since what is evaluated of K - H is K - H.
        of = self.stated.exact.deviation(sign)
        c.by(Atom(summed - of, Relation.EQUAL), "D1 == K1 - H1", hints=_EQUATIONS)
        same = tools.lemma("a <= b", "0 <= a", "0 <= b", "a*a == x*x", "b*b == y*y", "x == y", hints=_SAME)
        c.use(same, a=size, b=self.op.exact.absolute(of), x=summed, y=of)
        return c.use(tools.transitive, x=lower.computed, y=size, z=self.op.exact.absolute(of))


_EQUATIONS = Hints(ladder=((1, 99, 1), (1, 99, 2), (1, 99, 3)))
_SAME = Hints(ladder=((2, 4, 1), (2, 6, 2), (3, 4, 2)))
