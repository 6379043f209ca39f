"""What a search says of a cell of gradients that it drops: the claim holds at each of them.

A cell is dropped when `guard.cells.make_upper` is at most `guard.allowance.make_allowance`, both as evaluated.  The
sources are run on symbols in binary64, beside `make_update_slack` over the reals:

    hypothesis   upper <= allowance, both as evaluated; those of `cell_evaluation`; the inflation, counted
    conclusion   step*|N(g)| + slack <= threshold and the same of -g                           (`searched`)
                 the same in neighbouring cells, if all of them are dropped                    (`row`)
                 |U_hat - U| <= threshold of one family, for its |g| in the cell               (`cleared`)

A search begins with a row of cells from zero to the largest gradient, and replaces a cell by the two that it is cut
into.  So, by `row` of the first cells and of the two halves at every cut, if all that are left are dropped the claim
holds at every gradient; that each loop does just that is exhausted (`tests/reference/guard/test_cover.py`).

Claimed: nothing is written down a second time here.  `threshold` is the binary64 number that the guard holds.
"""

from __future__ import annotations

from typing import NamedTuple

from guarded_moments.proofs import cells
from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cell_evaluation import EvaluatedCell, evaluated_by_ends
from guarded_moments.proofs.claims import parse_claim
from guarded_moments.proofs.evaluation import EXACT, HELD, INFLATION, ONE, Binary64Arithmetic, T, rounding_count
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Statement, normalised
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.allowance import make_allowance, make_update_slack
from guarded_moments.reference.guard.constants import GuardConstants

#: The number that both updates may differ by: the guard's own, rounded down from the claim's.
THRESHOLD = HELD.threshold
#: The magnitude of the gradient of a family, which the ends of the cell enclose.
SIZE = Polynomial.variable("size")


class Searched(NamedTuple):
    """The statement about one dropped cell, in the constants of the guard."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: of `N(g)`, `-N(g)`, `N(-g)` and `-N(-g)`
    cell: EvaluatedCell
    slack: Polynomial  #: over the reals, in units of the parameter
    upper: Polynomial  #: as evaluated
    allowance: Polynomial  #: as evaluated
    roundings: int  #: that the inflation makes up for


def searched() -> Searched:
    """Run the sources of the search's comparison on symbols."""
    cell = evaluated_by_ends()
    exact, op = ExactArithmetic(cell.exact.definitions), Binary64Arithmetic(cell.floats)
    slack = make_update_slack(exact)(EXACT, *cell.exact.state)
    upper = op.maximum(*cell.uppers)
    allowance = make_allowance(op)(HELD, INFLATION, *cell.exact.state)
    count = rounding_count() + 1
    stated = [*cell.exact.definitions.atoms, *cell.floats.atoms, Atom(allowance - upper, Relation.AT_LEAST)]
    stated += [Atom(INFLATION * T**count - ONE, Relation.AT_LEAST), Atom(INFLATION, Relation.AT_LEAST)]
    hypotheses = cell.stated.hypotheses | normalised(stated)
    both = (cell.exact.deviation(sign) for sign in (1, -1))
    left = (THRESHOLD - slack - EXACT.step * one for of in both for one in (of, -of))
    conclusion = (Atom(one, Relation.AT_LEAST).normal() for one in left)
    return Searched(hypotheses, tuple(conclusion), cell, slack, upper, allowance, count)


class Row(NamedTuple):
    """The statement about dropped cells of which each begins where the one before it ends."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: as of one cell, for any gradient from the first end to the last
    renamed: tuple[dict[str, Polynomial], ...]  #: what stands for the variables of one cell
    cuts: tuple[Polynomial, ...]  #: where two cells meet


def row(search: Searched, cells: int) -> Row:
    """Put neighbouring cells together; what is made of the ends of each but the first has names of its own.

    No order of the cuts is assumed, nor that they lie between the first end and the last.
    """
    ends = ("low", "high")
    of_ends = search.cell.exact.definitions.made_of(ends) | search.cell.floats.made_of(ends)
    cuts = tuple(Polynomial.variable(f"cut{place}") for place in range(1, cells))
    renamed = []
    for place in range(cells):
        own = {name: Polynomial.variable(f"cell{place}_{name}") for name in of_ends} if place else {}
        low = {"low": cuts[place - 1]} if place else {}
        renamed.append(own | low | ({"high": cuts[place]} if place < len(cuts) else {}))
    of_cells = {atom.substitute(values) for values in renamed for atom in search.hypotheses}
    g = Polynomial.variable("g")
    sides = {Atom(side, Relation.AT_LEAST).normal() for cut in cuts for side in (cut - g, g - cut)}
    return Row(frozenset(of_cells - sides), search.conclusion, tuple(renamed), cuts)


class Cleared(NamedTuple):
    """The statement about one family and one dropped cell."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `|U_hat - U| <= threshold`


def instance(stated: Statement) -> dict[str, Polynomial]:
    """What of a family stands for the variables of `searched`."""
    state = (Polynomial.variable(prefix + name) for prefix in (NATIVE, RECOVERED) for name in STATE)
    values = dict(zip(("m", "v", "m_hat", "v_hat"), state, strict=True))
    constants = {name: getattr(stated.constants, name) for name in GuardConstants._fields if name != "threshold"}
    return constants | values | {"g": SIZE}


def cleared(stated: Statement, search: Searched) -> Cleared:
    """Put the statement of a family and that of a dropped cell together."""
    values, g = instance(stated), Polynomial.variable("g")
    fulfilled = {atom.normal() for text in cells.OF_CONSTANTS for atom in parse_claim(text, GuardConstants._fields)}
    of_search = normalised(atom.substitute(values) for atom in search.hypotheses - fulfilled)
    size = normalised([Atom(SIZE, Relation.AT_LEAST), Atom(SIZE * SIZE - g * g, Relation.EQUAL)])
    difference = stated.recovered.update - stated.native.update
    conclusion = (Atom(THRESHOLD - one, Relation.AT_LEAST).normal() for one in (difference, -difference))
    return Cleared(stated.updates | of_search | size, tuple(conclusion))
