"""What is evaluated of a cell in binary64 is at least `|N|` at every gradient of the cell.

The bounds over the reals, before any allowance for rounding, are those of `cell_by_ends` and `cell_by_slopes`.  Their
evaluation errs by less than the allowance that the source adds, which is relative to the magnitudes that entered.

The signs of `v - v_hat`, of `m_hat - m` and of `m` are variables whose squares are 1, until the end: each is then 1 or
-1, whichever makes its difference nonnegative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any, Protocol

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cell_evaluation import EvaluatedCell
from guarded_moments.proofs.derive.cell import Cell
from guarded_moments.proofs.derive.cell_by_ends import ByEnds
from guarded_moments.proofs.derive.cell_by_slopes import BySlopes
from guarded_moments.proofs.derive.context import Context, DerivationError, at_least
from guarded_moments.proofs.derive.evaluation import Pair, held_constants
from guarded_moments.proofs.derive.signed_evaluation import Least, Near, SignedEvaluation, rate
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import MU, ONE
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.reference.guard.cells import make_end, make_terms, make_uppers
from guarded_moments.reference.guard.slopes import make_point, make_slope_uppers

#: The signs that are not known, and what they are the signs of.
SIGNS = {"sv": "v - v_hat", "sm": "m_hat - m", "sp": "m"}


def derive_evaluated_by_ends(tools: Toolbox, stated: EvaluatedCell) -> list[Proved]:
    """Derive what `guard.cells` evaluates: both signs of the gradient, each of both signs of `N`."""
    made = Evaluated(tools, stated, ByEnds)
    c = made.c
    made.magnitudes({"pull": "ap", "f0": "af", "D0": "ad"}, {"pull": "sp", "f0": "sm", "D0": "sv"})
    made.shrinks("sm*shift", "K2", "K1", "K0", "f2", "f0", "af")
    made.shrinks_by_gap("D2", "P2", "P1", "P0", "D0", "ad")
    c.use(tools.scaled, x="x0", y="x1", c="w")
    c.use(tools.scaled, x="x1", y="x2", c="w")
    made.widen("w*x0", "w*x1", "w*x2")
    return made.derive(make_end, make_uppers)


def derive_evaluated_by_slopes(tools: Toolbox, stated: EvaluatedCell) -> list[Proved]:
    """Derive what `guard.slopes` evaluates: both signs of the gradient, each of both signs of `N`."""
    made = Evaluated(tools, stated, BySlopes)
    c = made.c
    values = {"pull": "ap", "shift": "ash", "D0": "ad", "Dsteep": "asteep"}
    made.magnitudes(values, {"pull": "sp", "shift": "sm", "D0": "sv", "Dsteep": "sv"})
    made.shrinks_by_gap("D2", "P2", "P1", "P0", "D0", "ad")
    made.shrinks_by_gap("Dflat", "Yflat", "Ymid", "Ysteep", "Dsteep", "asteep")
    for name, factor in (("K0", "K0"), ("Fsteep", "Fsteep")):
        c.use(tools.scaled, x="sm*shift", y="ash", c=factor)
        made.widen(f"sm*shift*{name}", f"ash*{name}")
    c.use(tools.transitive, x="Fflat", y="Fmid", z="Fsteep")
    c.use(tools.scaled, x="Fflat", y="Fsteep", c="sm*shift")
    made.widen("sm*shift*Fflat", "sm*shift*Fsteep", "ash*Fsteep")
    for difference in ("D0", "D2"):
        c.use(tools.scaled, x=f"sv*{difference}", y="ad", c="w")
        made.widen(f"w*sv*{difference}", "w*ad")
    return made.derive(make_point, make_slope_uppers)


class Bound(Protocol):
    """A derivation over the reals."""

    def __init__(self, cell: Cell) -> None: ...

    def prepare(self) -> None:
        """What does not depend on the sign of the gradient."""

    def bounded(self, sign: int) -> None:
        """The bound for gradients of one sign."""

    def finish(self, shown: Iterable[Proved]) -> list[Proved]:
        """Without what only the derivation speaks of."""
        ...


class Evaluated:
    """The evaluation of one cell."""

    def __init__(self, tools: Toolbox, stated: EvaluatedCell, bound: type[Bound]) -> None:
        """Derive the bound over the reals as far as it does not depend on the sign of the gradient."""
        self.tools, self.stated = tools, stated
        cell = Cell(tools, stated.stated)
        c = self.c = cell.c
        self.bound = bound(cell)
        self.bound.prepare()
        for sign, of in SIGNS.items():
            c.assume(f"{sign}*{sign} == 1", f"0 <= {sign}*({of})")
        c.use(tools.product, x="complement", y="sp*m")
        c.use(tools.product, x="complement", y="sm*(m_hat - m)")
        c.use(tools.product, x="radicand", y="sv*(v - v_hat)")
        # The same facts, in the names of the statement alone.
        self.plain = Context(tools.prover)
        self.plain.known = c.known
        self.op = SignedEvaluation(tools, self.plain, stated.exact.definitions, stated.floats)

    def widen(self, *chain: str) -> None:
        """Take the first magnitude for the last; each is known to be at most the next."""
        first, *rest = (self.c.poly(one) for one in chain)
        for middle, last in pairwise(rest):
            self.c.use(self.tools.transitive, x=first, y=middle, z=last)
        self.op.widened[first] = rest[-1]

    def magnitudes(self, values: dict[str, str], signs: dict[str, str]) -> None:
        """A value times its sign is at most its magnitude, which the source has."""
        facts = ("0 <= a", "a*a == x*x", "s*s == 1")
        below = self.tools.lemma("s*x <= a", *facts, hints=Hints(ladder=((2, 4, 2),)))
        for value, magnitude in values.items():
            self.c.use(below, s=signs[value], x=value, a=magnitude)
            self.widen(f"{signs[value]}*{value}", magnitude)

    def shrinks(self, factor: str, far: str, inside: str, near: str, small: str, large: str, magnitude: str) -> None:
        """`factor` times what shrinks along the cell is at most what it is at the low end."""
        c, tools = self.c, self.tools
        c.use(tools.transitive, x=far, y=inside, z=near)
        c.use(tools.scaled, x=far, y=near, c=factor)
        sign = factor.split("*", maxsplit=1)[0]
        self.widen(f"{sign}*{small}", f"{sign}*{large}", magnitude)

    def shrinks_by_gap(self, small: str, far: str, inside: str, near: str, large: str, magnitude: str) -> None:
        """The same of multiples of `gap`, which have its sign."""
        c, tools = self.c, self.tools
        c.use(tools.transitive, x=far, y=inside, z=near)
        c.use(tools.scaled, x=far, y=near, c="sv*gap")
        multiples = tools.lemma("s*d <= s*D", "d == g*p", "D == g*P", "s*g*p <= s*g*P", hints=_EQUATIONS)
        c.use(multiples, s="sv", d=small, D=large, g="gap", p=far, P=near)
        self.widen(f"sv*{small}", f"sv*{large}", magnitude)

    def derive(
        self, make_place: Callable[..., Callable[..., object]], make: Callable[..., Callable[..., object]]
    ) -> list[Proved]:
        """Run the source on pairs, and compare what comes out with what is stated."""
        uppers = self._run(make_place, make)
        shown = []
        for sign, upper, computed in zip((1, -1), uppers, self.stated.uppers, strict=True):
            if upper.computed != computed:
                raise DerivationError(f"the source computes {upper.computed}, not {computed}")
            self.bound.bounded(sign)
            shown += [self._unsigned(one) for one in self._at_most(upper)]
        return self.bound.finish(shown)

    @property
    def low_is_positive(self) -> bool:
        """Whether the cell does not begin at zero, so that no root is zero."""
        return bool({Atom(self.stated.exact.ends[0].g, Relation.ABOVE)} & self.stated.exact.hypotheses)

    def _operations(self) -> Any:  # noqa: ANN401 - each element is one of two kinds
        return self.op

    def _states(self, op: SignedEvaluation) -> tuple[Pair, ...]:
        """`m`, `v`, `m_hat` and `v_hat`, with the signs of what is made of them."""
        m, v, m_hat, v_hat = (Pair(value, value, 0, positive=False) for value in self.stated.exact.state)
        signs = {name: Polynomial.variable(name) for name in SIGNS}
        op.signs = {v.exact - v_hat.exact: signs["sv"], m_hat.exact - m.exact: signs["sm"]}
        return m._replace(sign=signs["sp"]), v, m_hat, v_hat

    def _run(self, make_place: Callable[..., Any], make: Callable[..., Any]) -> tuple[Near | Least, Near | Least]:
        c, op = self.plain, self._operations()
        constants = held_constants(self.tools, c, ("eps", "curvature"))
        m, v, m_hat, v_hat = self._states(op)
        low, high = (Pair(at.g, at.g, 0, positive=self.low_is_positive) for at in self.stated.exact.ends)
        op.signs[high.exact - low.exact] = ONE
        c.by(at_least(high.exact, low.exact), at_least(high.exact, "g"), at_least("g", low.exact))
        if self.low_is_positive:
            c.use(self.tools.lemma("0 < y", "0 < x", "x <= y"), x=low.exact, y=high.exact)
        terms = make_terms(op)(constants, m, v, m_hat, v_hat)
        places = [make_place(op)(constants, v, v_hat, terms.gap, g) for g in (low, high)]
        uppers: tuple[Near | Least, Near | Least] = make(op)(constants, terms.shift, terms.pull, *places)
        return uppers

    def _at_most(self, upper: Near | Least) -> list[Proved]:
        """`|N| <=` what is computed."""
        c, tools = self.c, self.tools
        if isinstance(upper, Near):
            return self._absorbed(upper)
        self._absorbed(upper.first)
        self._inflated(upper.second)
        first, second = upper.first.computed, upper.second.computed
        return [
            *c.use(tools.below_least, x="N", a=first, b=second, p=upper.computed),
            *c.use(tools.below_least, x="-N", a=first, b=second, p=upper.computed),
        ]

    def _absorbed(self, near: Near) -> list[Proved]:
        """The allowance that the source adds to the bound is at least what all of it may err by."""
        c, tools = self.c, self.tools
        added = near.exact - c.poly("extent")
        self._shared(near, added)
        enough = tools.lemma("abs(n) <= f", "abs(n) <= x", "abs(f - x - r) <= z", "z <= r")
        return c.use(enough, n="N", f=near.computed, x="extent", r=added, z=rate(near.roundings) * near.magnitude)

    def _shared(self, near: Near, allowance: Polynomial) -> None:
        """The allowance for rounding is a share of the magnitudes that entered, and covers what they may err by."""
        c, tools, size = self.c, self.tools, near.magnitude - allowance
        share = allowance.terms[0][1] / size.terms[0][1]
        if allowance != size.scaled(share):
            raise DerivationError(f"the source allows {allowance}, no multiple of {size}")
        error = rate(near.roundings).scaled(1 + share)
        self.plain.collect(at_least(Polynomial.constant(share), error), {"most": _MOST}, ["most"])
        c.use(tools.lemma("0 <= x", "0 <= x + k*x", "0 <= k"), x=size, k=Polynomial.constant(share))
        c.use(tools.scaled, x=error, y=Polynomial.constant(share), c=size)

    def _inflated(self, pair: Pair) -> list[Proved]:
        """The factor that the source applies to the bound that holds to infinity makes up for its roundings."""
        c, tools, plain = self.c, self.tools, self.plain
        bound = c.poly("held_up")
        factor = pair.exact.terms[0][1] / bound.terms[0][1]
        if pair.exact != bound.scaled(factor):
            raise DerivationError(f"the source inflates to {pair.exact}, no multiple of {bound}")
        count = Polynomial.constant(Fraction(pair.roundings))
        inflation = Polynomial.constant(factor)
        plain.collect(at_least(inflation * (ONE - count * MU), ONE), {"most": _MOST}, ["most"])
        power = self.op.bernoulli(pair.roundings)
        facts = {"n": "abs(n) <= x", "one": "1 <= k*b", "b": "b <= p", "p": "p*k*x <= f", "x": "0 <= x", "k": "0 <= k"}
        enough = [
            *tools.by_products("n <= f", facts | {"n": "n <= x"}, "n", "one x", "b k x", "p"),
            *tools.by_products("-n <= f", facts | {"n": "-n <= x"}, "n", "one x", "b k x", "p"),
        ]
        c.use(tools.lemma("0 <= x", "abs(n) <= x"), n="N", x=bound)
        return c.use(enough, n="N", x=bound, k=inflation, b=ONE - count * MU, p=power, f=pair.computed)

    def _unsigned(self, proved: Proved) -> Proved:
        """Whatever the signs are."""
        recording = self.tools.prover.recording
        for name, of in SIGNS.items():
            both = [recording.instantiate(proved, {name: ONE.scaled(Fraction(sign))}) for sign in (1, -1)]
            proved = recording.cases(both[0], both[1], self.c.poly(of))
        return proved


_EQUATIONS = Hints(ladder=((1, 99, 1), (1, 99, 2), (1, 99, 3)))
_MOST = "mu <= 2**-53"
