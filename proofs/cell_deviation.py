"""What the exact worst case says of a cell of gradients: how far the two bit-exact updates can be apart on it.

`guard.cell_slack.make_deviation_upper` is run on symbols, over the reals and in binary64, for a cell on which `upper`
is known to bound `|N|` (`cell_evaluation` says which numbers do):

    evaluation   the number evaluated in binary64, times the inflation, is at least the one over the reals
    a family     |U_hat - U| <= that number times the inflation, for |g| in the cell and |N(g)| <= upper

of the exact product and of the one that binary64 rounds, which is what is compared.

Claimed: nothing is written down a second time here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from guarded_moments.proofs import cells
from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cells import CellStatement, places_of_cell
from guarded_moments.proofs.claims import parse_claim
from guarded_moments.proofs.cleared import SIZE, instance
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.evaluation import EXACT, HELD, INFLATION, ONE, Binary64Arithmetic, T, binary64_hypotheses
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import Statement, normalised
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.cell_slack import deviation_roundings, make_deviation_upper
from guarded_moments.reference.guard.cells import make_terms
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.slopes import Point, make_point

#: What is known to bound `|N|` on the cell.
UPPER = Polynomial.variable("upper")


class CellDeviation(NamedTuple):
    """The statement about what is evaluated of one cell."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `bound <= evaluated*inflation`, exactly and rounded
    cell: CellStatement
    floats: Definitions
    bound: Polynomial  #: over the reals
    evaluated: Polynomial
    compared: tuple[Polynomial, Polynomial]  #: times the inflation, exactly and rounded
    roundings: int  #: that the inflation makes up for


def cell_deviation() -> CellDeviation:
    """Run the source of the slack on a cell on symbols."""
    cell, floats = places_of_cell(), Definitions("float_")
    m, v, m_hat, v_hat = cell.state
    exact, op = ExactArithmetic(cell.definitions), Binary64Arithmetic(floats)
    low, high = (Point(at.end, at.root, at.root_hat, at.native, Polynomial()) for at in cell.ends)
    bound = make_deviation_upper(exact)(EXACT, UPPER, m, m_hat, low, high)
    point: Callable[..., Point[Polynomial]] = make_point(op)
    gap = make_terms(op)(HELD, *cell.state).gap
    held = [point(HELD, v, v_hat, gap, at.g) for at in cell.ends]
    evaluated = make_deviation_upper(op)(HELD, UPPER, m, m_hat, held[0], held[1])
    compared = (evaluated * INFLATION, op.mul(evaluated, INFLATION))
    count = deviation_roundings() + 1
    stated = [*cell.definitions.atoms, *floats.atoms, *binary64_hypotheses(), Atom(UPPER, Relation.AT_LEAST)]
    stated += [Atom(INFLATION * T**count - ONE, Relation.AT_LEAST), Atom(INFLATION, Relation.AT_LEAST)]
    conclusion = tuple(Atom(one - bound, Relation.AT_LEAST).normal() for one in compared)
    hypotheses = cell.hypotheses | normalised(stated)
    return CellDeviation(hypotheses, conclusion, cell, floats, bound, evaluated, compared, count)


class FamilyDeviation(NamedTuple):
    """The statement about one family."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `|U_hat - U| <= evaluated*inflation`, exactly and rounded


def family_deviation(stated: Statement, made: CellDeviation) -> FamilyDeviation:
    """Put the statement of a family and that of a cell together."""
    values, g = instance(stated), Polynomial.variable("g")
    fulfilled = {atom.normal() for text in cells.OF_CONSTANTS for atom in parse_claim(text, GuardConstants._fields)}
    given = [atom.substitute(values) for atom in made.hypotheses - fulfilled]
    given += [Atom(SIZE, Relation.AT_LEAST), Atom(SIZE * SIZE - g * g, Relation.EQUAL)]
    inside, k = made.cell.at[1], stated.constants
    moments = (k.complement * values[name] + k.w * g for name in ("m_hat", "m"))
    recovered, native = (m * one for m, one in zip(moments, (inside.end.reciprocal, inside.native), strict=True))
    given += [Atom(UPPER - one, Relation.AT_LEAST) for one in (recovered - native, native - recovered)]
    difference = stated.recovered.update - stated.native.update
    both = [one.substitute(values) for one in made.compared]
    conclusion = (Atom(most - one, Relation.AT_LEAST).normal() for most in both for one in (difference, -difference))
    return FamilyDeviation(stated.updates | normalised(given), tuple(conclusion))
