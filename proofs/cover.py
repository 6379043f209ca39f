"""That a cell of gradients is cut between its ends: the source of the cut, run on symbols along each of its paths.

    hypotheses   0 <= low <= high, what each choice says, and that rounding to nearest gives no number that is farther
                 from the exact one than `low` or `high` is, which the format holds (nor `2*low`, `2*high`, for a sum)
    conclusion   low <= cut <= high

Products are by powers of two, and exact: a binary32 value and its multiples by 1/2 to 16 are in the normal range of
binary64.

Claimed: nothing is written down a second time here.  What follows for the gradients of a cell is in `cleared`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple, TypeAlias, final

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import normalised
from guarded_moments.reference.guard.cut import make_cut

LOW, HIGH = Polynomial.variable("low"), Polynomial.variable("high")
#: What each choice of the source takes: the first of its two, or the second.
Path: TypeAlias = tuple[bool, ...]
#: How often the source chooses.
_CHOICES = 2


class Nearest(NamedTuple):
    """A rounding, of which numbers are known that the format holds."""

    result: Polynomial
    exact: Polynomial
    held: tuple[Polynomial, Polynomial]


@final
class CuttingArithmetic:
    """What a cut is made of, along one path."""

    def __init__(self, definitions: Definitions, path: Path) -> None:
        """Choose as the path says, and define what is rounded and chosen."""
        self._definitions, self._left = definitions, list(path)
        self.roundings: list[Nearest] = []

    def constant(self, value: float) -> Polynomial:
        """A number."""
        return Polynomial.constant(Fraction(value))

    def _rounded(self, exact: Polynomial, held: tuple[Polynomial, Polynomial]) -> Polynomial:
        result = self._definitions.variable("rounded")
        for number in held:
            self._definitions.at_least((number - exact) * (number - exact), (result - exact) * (result - exact))
        self.roundings.append(Nearest(result, exact, held))
        return result

    def add(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a + b` in binary64."""
        return self._rounded(a + b, (LOW.scaled(Fraction(2)), HIGH.scaled(Fraction(2))))

    def mul(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a * b`, of which one is a power of two."""
        value = a.constant_value if a.constant_value is not None else b.constant_value
        if value is None or value.numerator & (value.numerator - 1) or value.denominator & (value.denominator - 1):
            raise AssertionError(f"{a} * {b} may be rounded")
        return a * b

    def nearest(self, a: Polynomial) -> Polynomial:
        """The nearest binary32 value."""
        return self._rounded(a, (LOW, HIGH))

    def select_less(self, a: Polynomial, b: Polynomial, if_less: Polynomial, otherwise: Polynomial) -> Polynomial:
        """One of both, and why."""
        less = self._left.pop(0)
        atom = Atom(b - a, Relation.ABOVE) if less else Atom(a - b, Relation.AT_LEAST)
        self._definitions.atoms.append(atom.normal())
        return if_less if less else otherwise


class Cut(NamedTuple):
    """The statement about one path."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `low <= cut`, `cut <= high`
    cut: Polynomial
    roundings: Sequence[Nearest]


def paths() -> tuple[Path, ...]:
    """Every path through the source."""
    return tuple(product((True, False), repeat=_CHOICES))


def path_name(path: Path) -> str:
    """What the choices take, as one word."""
    return "_".join("first" if less else "second" for less in path)


def cut(path: Path) -> Cut:
    """Run the source of the cut on symbols."""
    definitions = Definitions("cut_")
    op: Any = CuttingArithmetic(definitions, path)  # of the operations that the source takes from it
    made = make_cut(op)(LOW, HIGH)
    stated = [*definitions.atoms, Atom(LOW, Relation.AT_LEAST), Atom(HIGH - LOW, Relation.AT_LEAST)]
    conclusion = tuple(Atom(one, Relation.AT_LEAST).normal() for one in (made - LOW, HIGH - made))
    return Cut(normalised(stated), conclusion, made, op.roundings)
