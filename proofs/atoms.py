"""Atoms: the assertions of the proofs, that a polynomial is at least, above or equal to zero.

Claimed: `Atom.normal` asserts the same as the atom, and two atoms that differ by a positive factor (for an equation, by
any factor) have one normal form.  Trusted: `fractions.Fraction`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from guarded_moments.proofs.polynomials import Point, Polynomial


class Relation(Enum):
    """How the polynomial of an atom compares with zero; the value is its symbol."""

    AT_LEAST = ">="
    ABOVE = ">"
    EQUAL = "=="


@dataclass(frozen=True, slots=True)
class Atom:
    """The assertion that a polynomial stands in a relation to zero.

    Attributes:
        polynomial: the left-hand side.
        relation: its relation to zero.
    """

    polynomial: Polynomial
    relation: Relation

    def holds(self, point: Point) -> bool:
        """Whether the assertion is true at a rational point, decided exactly."""
        value = self.polynomial.at(point)
        match self.relation:
            case Relation.AT_LEAST:
                return value >= 0
            case Relation.ABOVE:
                return value > 0
            case Relation.EQUAL:
                return value == 0

    def __str__(self) -> str:
        """The assertion in the claim language."""
        return f"{self.polynomial} {self.relation.value} 0"

    def normal(self) -> "Atom":
        """The same assertion, scaled so that the last coefficient is 1 (or -1, where the sign matters)."""
        if not self.polynomial.terms:
            return self
        last = self.polynomial.terms[-1][1]
        scale = last if self.relation is Relation.EQUAL else abs(last)
        return self if scale == 1 else Atom(self.polynomial.scaled(1 / scale), self.relation)

    @property
    def trivial(self) -> bool:
        """Whether the polynomial is a constant that makes the assertion true."""
        return self.polynomial.constant_value is not None and self.holds({})

    def substitute(self, values: Mapping[str, Polynomial]) -> "Atom":
        """The normal form of the assertion with polynomials in place of variables, all at once."""
        return Atom(self.polynomial.substitute(values), self.relation).normal()
