"""What a search evaluates of a cell of gradients: the source of its bounds run on symbols in binary64.

`cells` states the bounds over the reals.  Here the same source is run on rounded constants by rounded operations, and
the statement is about the number that comes out, which a search compares: it is at least the deviation of the exact
updates at every gradient of the cell.

    conclusion   |N(g)| <= plus and |N(-g)| <= minus, both as evaluated, `N` as in `cells`
                 plus <= |N(g)| and minus <= |N(-g)|, of what is evaluated from below at one gradient

The hypotheses are those of `cells` and of `evaluation`, and `mu <= 2**-53`: the allowance for rounding that the source
adds is a number, counted for binary64.

Claimed: nothing is written down a second time here.  Trusted: the reading of binary64 in `evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.cells import CellStatement, cell_by_ends, cell_by_slopes, places_of_cell
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.evaluation import HELD, MU, Binary64Arithmetic, binary64_hypotheses
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import normalised
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.floats import BINARY64
from guarded_moments.reference.guard.cells import make_end, make_lowers, make_terms, make_uppers
from guarded_moments.reference.guard.slopes import Point, make_point, make_slope_uppers


class EvaluatedCell(NamedTuple):
    """The statement about what is evaluated of one cell."""

    stated: CellStatement  #: with the hypotheses of both, and the evaluated bounds in its conclusion
    exact: CellStatement  #: over the reals
    floats: Definitions  #: of the evaluation in binary64
    uppers: tuple[Polynomial, Polynomial]  #: as evaluated


def evaluated_by_ends() -> EvaluatedCell:
    """Run `guard.cells` in binary64."""
    exact, floats = cell_by_ends(), Definitions("float_")
    op = Binary64Arithmetic(floats)
    terms = make_terms(op)(HELD, *exact.state)
    low, high = (make_end(op)(HELD, terms.v, terms.v_hat, terms.gap, at.g) for at in exact.ends)
    return _evaluated(exact, floats, make_uppers(op)(HELD, terms.shift, terms.pull, low, high))


def evaluated_by_slopes() -> EvaluatedCell:
    """Run `guard.slopes` in binary64."""
    exact, floats = cell_by_slopes(), Definitions("float_")
    op = Binary64Arithmetic(floats)
    terms = make_terms(op)(HELD, *exact.state)
    point: Callable[..., Point[Polynomial]] = make_point(op)
    low, high = (point(HELD, terms.v, terms.v_hat, terms.gap, at.g) for at in exact.ends)
    return _evaluated(exact, floats, make_slope_uppers(op)(HELD, terms.shift, terms.pull, low, high))


def evaluated_at_gradient() -> EvaluatedCell:
    """Run what is evaluated from below at a gradient, in binary64: at most the magnitude of `N` there."""
    exact, floats = places_of_cell(), Definitions("float_")
    op, inside = Binary64Arithmetic(floats), exact.at[1]
    terms = make_terms(op)(HELD, *exact.state)
    end = make_end(op)(HELD, terms.v, terms.v_hat, terms.gap, inside.g)
    lowers = make_lowers(op)(HELD, terms.shift, terms.pull, end)
    definitions = exact.definitions  # with the magnitudes that enter over the reals
    make_lowers(ExactArithmetic(definitions))(exact.constants, exact.terms.shift, exact.terms.pull, inside.end)
    sizes = [definitions.magnitude(exact.deviation(sign)) for sign in (1, -1)]
    both = zip(sizes, lowers, strict=True)
    conclusion = tuple(Atom(size - lower, Relation.AT_LEAST).normal() for size, lower in both)
    hypotheses = exact.hypotheses | _of_binary64(floats) | normalised(definitions.atoms)
    return EvaluatedCell(exact._replace(hypotheses=hypotheses, conclusion=conclusion), exact, floats, lowers)


def _of_binary64(floats: Definitions) -> frozenset[Atom]:
    most = Atom(Polynomial.constant(Fraction(BINARY64.unit_roundoff)) - MU, Relation.AT_LEAST)
    return normalised([*floats.atoms, *binary64_hypotheses(), most])


def _evaluated(exact: CellStatement, floats: Definitions, uppers: tuple[Polynomial, Polynomial]) -> EvaluatedCell:
    hypotheses = exact.hypotheses | _of_binary64(floats)
    return EvaluatedCell(exact.bounded_by(uppers)._replace(hypotheses=hypotheses), exact, floats, uppers)
