"""What the exact guard and the search say about a cell of gradients, taken from the source that computes it.

`guard.cells.make_uppers` and `guard.slopes.make_slope_uppers` are run on symbols, with `make_terms` on the two states
and `make_end` or `make_point` at both ends of a cell and at a gradient inside it.  In the notation of those modules,
with `K` for `H_hat`:

    hypotheses   0 <= low <= g <= high, what each operation means (`symbolic`), and the preconditions below
    conclusion   |N(g)| <= plus and |N(-g)| <= minus,   N(g) = (complement*m_hat + w*g)*K - (complement*m + w*g)*H

Claimed: nothing is written down a second time here but `N` and the preconditions; no order of `v` and `v_hat` is
assumed.  The bounds are over the reals: of their evaluation in binary64, and of the rounding of the updates, this says
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import parse_claim
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import normalised
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.cells import End, Terms, make_end, make_roots, make_terms, make_uppers
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.slopes import Point, make_point, make_slope_uppers

#: What is assumed of the constants, of the states and of the cell, and why it holds where a cell is bounded.
PRECONDITIONS = {
    "0 <= w": "`guard_constants` refuses other weights",
    "0 < eps": "`guard_constants` refuses eps of zero",
    "0 <= radicand": "`beta2/b**2`",
    "0 < curvature": "`c/b**2`, and `guard_constants` refuses `c` of zero",
    "0 <= gap_cap": "at least `1/q`",
    "1 <= gap_cap*gap_cap*curvature": "`gap_cap` is at least `1/q`, and the curvature is `q**2`",
    "0 < tiny": "TINY is 2**-1000",
    "0 <= v": "`in_domain`, else the coordinate escapes",
    "0 <= v_hat": "`in_domain`, else the coordinate escapes",
    "0 <= low <= g <= high": "the gradient is in the cell",
    "0 < low": "for the bound by slopes alone: a search asks for no other",
}
#: Those that are about constants alone, which the constants of any family fulfil.
OF_CONSTANTS = tuple(list(PRECONDITIONS)[:6])
#: The magnitudes of gradients at which reciprocals are needed: the ends of the cell, and any inside.
PLACES = ("low", "g", "high")
_ONE = Polynomial.constant(1)


class At(NamedTuple):
    """A magnitude of a gradient, and the coordinate's roots and reciprocals there."""

    g: Polynomial
    root: Polynomial
    root_hat: Polynomial
    native: Polynomial  #: `H(g)`
    end: End[Polynomial]


class CellStatement(NamedTuple):
    """The statement about one cell."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `N(g) <= plus`, `-N(g) <= plus`, then the same of `-g` and `minus`
    constants: GuardConstants[Polynomial]
    terms: Terms[Polynomial]
    at: tuple[At, ...]  #: in the order of `PLACES`
    uppers: tuple[Polynomial, Polynomial]
    definitions: Definitions
    state: tuple[Polynomial, ...]  #: `m v m_hat v_hat`

    @property
    def ends(self) -> tuple[At, At]:
        """Both ends of the cell."""
        return self.at[0], self.at[2]

    def deviation(self, sign: int) -> Polynomial:
        """`N` at `sign*g`."""
        k, (m, _, m_hat, _), inside = self.constants, self.state, self.at[1]
        moved = (k.w * inside.g).scaled(Fraction(sign))
        recovered = (k.complement * m_hat + moved) * inside.end.reciprocal
        return recovered - (k.complement * m + moved) * inside.native

    def bounded_by(self, uppers: tuple[Polynomial, Polynomial]) -> CellStatement:
        """The statement that these bound the deviation."""
        both = [(upper, self.deviation(sign)) for sign, upper in zip((1, -1), uppers, strict=True)]
        conclusion = (_at_least(upper, one) for upper, of in both for one in (of, -of))
        return self._replace(conclusion=tuple(conclusion), uppers=uppers)


def cell_by_ends() -> CellStatement:
    """Run `guard.cells` on symbols."""
    run = _Run()
    end = make_end(run.op)
    ends = [end(run.k, run.terms.v, run.terms.v_hat, run.terms.gap, g) for g in run.places]
    uppers = make_uppers(run.op)(run.k, run.terms.shift, run.terms.pull, ends[0], ends[2])
    return run.stated(ends, uppers, [text for text in PRECONDITIONS if text != "0 < low"])


def places_of_cell() -> CellStatement:
    """The reciprocals at both ends of a cell and at a gradient inside, with no bound of the cell."""
    run = _Run()
    end = make_end(run.op)
    ends = [end(run.k, run.terms.v, run.terms.v_hat, run.terms.gap, g) for g in run.places]
    zero = Polynomial()
    return run.stated(ends, (zero, zero), [text for text in PRECONDITIONS if text != "0 < low"])._replace(conclusion=())


def cell_by_slopes() -> CellStatement:
    """Run `guard.slopes` on symbols."""
    run = _Run()
    point: Callable[..., Point[Polynomial]] = make_point(run.op)
    points = [point(run.k, run.terms.v, run.terms.v_hat, run.terms.gap, g) for g in run.places]
    uppers = make_slope_uppers(run.op)(run.k, run.terms.shift, run.terms.pull, points[0], points[2])
    return run.stated([one.end for one in points], uppers, PRECONDITIONS)


class _Run:
    """What both bounds are made of."""

    def __init__(self) -> None:
        self.definitions = Definitions("cell_")
        self.op = ExactArithmetic(self.definitions)
        self.k = GuardConstants(*(Polynomial.variable(name) for name in GuardConstants._fields))
        self.state = tuple(map(Polynomial.variable, ("m", "v", "m_hat", "v_hat")))
        self.terms = make_terms(self.op)(self.k, *self.state)
        self.places = tuple(map(Polynomial.variable, PLACES))

    def stated(
        self, ends: list[End[Polynomial]], uppers: tuple[Polynomial, Polynomial], preconditions: Iterable[str]
    ) -> CellStatement:
        """The statement that these are bounds of the cell."""
        k, at = self.k, []
        for g, end in zip(self.places, ends, strict=True):
            root, root_hat = make_roots(self.op)(k, self.terms.v, self.terms.v_hat, g)
            at.append(At(g, root, root_hat, self.op.div(_ONE, self.op.add(root, k.eps)), end))
        texts = [atom for text in preconditions for atom in parse_claim(text, _NAMES)]
        stated, tiny = [*self.definitions.atoms, *texts], Polynomial.variable("tiny")
        for one in at:  # both roots are zero, or together at least TINY
            total = one.root + one.root_hat
            stated.append(Atom(total * (total - tiny), Relation.AT_LEAST))
        made = CellStatement(normalised(stated), (), k, self.terms, tuple(at), uppers, self.definitions, self.state)
        return made.bounded_by(uppers)


_NAMES = frozenset({*GuardConstants._fields, "tiny", "v", "v_hat", *PLACES})


def _at_least(left: Polynomial, right: Polynomial) -> Atom:
    return Atom(left - right, Relation.AT_LEAST).normal()
