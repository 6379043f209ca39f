"""A cell is cut between its ends: rounding to nearest keeps between two numbers of a format what lies between them."""

from __future__ import annotations

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cover import Cut
from guarded_moments.proofs.derive.context import Context, at_least
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.recording import Proved


def derive_cut(tools: Toolbox, stated: Cut) -> list[Proved]:
    """Derive one path: what is rounded lies between the numbers that are held, and so does its result."""
    c = Context(tools.prover, sorted(stated.hypotheses, key=str))
    nearer = "(r - x)*(r - x) <= (z - x)*(z - x)"
    above, below = tools.lemma("z <= r", "z <= x", nearer), tools.lemma("r <= z", "x <= z", nearer)
    linear = [atom for atom in c.known if _is_linear(atom)]
    shown = []
    for result, exact, (least, most) in stated.roundings:
        c.by(at_least(exact, least), *linear)
        c.by(at_least(most, exact), *linear)
        shown = [*c.use(above, z=least, x=exact, r=result), *c.use(below, z=most, x=exact, r=result)]
        linear += [one.conclusion for one in shown if one.conclusion.relation is Relation.AT_LEAST]
    return compared(shown, stated)


def _is_linear(atom: Atom) -> bool:
    return all(sum(power for _, power in term) <= 1 for term, _ in atom.polynomial.terms)
