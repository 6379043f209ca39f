"""From the grid of a format to one rounding, and the sign of the rounded second moment, operation by operation."""

from __future__ import annotations

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.nearest import NEAREST, before_root, nearest, second_moment
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import NATIVE, Statement
from guarded_moments.proofs.symbolic import Rounding

_G = Polynomial.variable("g")


def derive_nearest(tools: Toolbox, kind: str) -> list[Proved]:
    """Derive the inequality of one rounding from the lemmas on nearest points of a grid."""
    c = Context(tools.prover, *NEAREST[kind])
    c.use(tools.lemmas("nearest_within_half_spacing"), x="x", r="r", h="h")
    if kind == "normal":
        c.by("abs(r - x) <= s*u", "abs(2*(x - r)) <= h", "h <= 2*u*s")
        c.use(tools.lemmas("rounding_error_in_binade"), x="x", r="r", a="a", s="s", u="u")
        bound = "u*a"
    else:
        c.by("abs(r - x) <= n", "abs(2*(x - r)) <= h", "h <= 2*n")
        bound = "n"
    shown = [c.use(tools.lemmas("rounding_error_near_zero"), e=error, a="a", c=bound, u="u", n="n")
             for error in ("r - x", "x - r")]  # fmt: skip
    return compared([one for found in shown for one in found], nearest(kind))


def derive_second_moment_sign(tools: Toolbox, stated: Statement) -> list[Proved]:
    """Derive that the rounded second moment is not negative, from every rounding before it in order."""
    whole = second_moment(stated)
    c = Context(tools.prover, sorted(whole.hypotheses, key=str))
    c.by("0 <= c", "0 < c")
    c.by("0 <= 1 - c", "c <= 1")
    c.add(*tools.lemma("0 <= g*g", hints=Hints(squares=(_G,))))
    c.use(tools.product, x="c", y="g*g")
    c.use(tools.product, x="1 - c", y=f"{NATIVE}v")
    roundings, of = before_root(stated)
    needed = set(of.variables)
    for one in reversed(roundings):
        needed |= one.exact.variables if one.result.variables <= needed else set()
    for one in roundings:
        if one.result.variables <= needed:
            _keep_sign(c, tools, one)
    return compared([c.known_fact(Atom(of, Relation.AT_LEAST).normal())], whole)


def _keep_sign(c: Context, tools: Toolbox, one: Rounding) -> None:
    """The sign of one rounded result: its own, or times the gradient where the exact one has the gradient's sign."""
    if one.exact == Polynomial.variable("c") * _G:
        # (r - c*g)**2 <= (c*g)**2 is r*r <= 2*c*g*r, so that g*r is not negative.
        facts = {"c": "0 < c", "near": "(r - c*g)**2 <= (c*g)**2"}
        with_g = tools.lemma("0 <= c*(g*r)", *facts.values(), hints=Hints(ladder=((2, 4, 0),), squares=_SQUARES))
        c.use(with_g, r=one.result)
        c.use(tools.lemma("0 <= y", "0 <= x*y", "0 < x", hints=Hints(ladder=((2, 3, 0),))), x="c", y=_G * one.result)
        return
    c.use(tools.lemma("0 <= x", "0 < x"), x="c")
    parts = [Polynomial.of([term]) for term in one.exact.terms]
    if Polynomial.variable(f"{NATIVE}v") in parts:  # (1 - c)*v, expanded
        kept = Polynomial.variable(f"{NATIVE}v") - Polynomial.variable("c") * Polynomial.variable(f"{NATIVE}v")
        parts = [kept, one.exact - kept]
    total = Polynomial()
    for part in parts:
        c.known_fact(Atom(part, Relation.AT_LEAST).normal())
        c.use(tools.lemma("0 <= x + y", "0 <= x", "0 <= y"), x=total, y=part)
        total += part
    c.use(tools.lemmas("rounding_keeps_sign"), x=one.exact, r=one.result)


_SQUARES = (Polynomial.variable("r"),)
