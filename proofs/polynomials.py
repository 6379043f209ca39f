"""Polynomials in named real variables, with exact rational coefficients.

Claimed: a `Polynomial` is in normal form (no zero coefficient, no zero exponent, terms sorted), so
two polynomials are equal exactly when they are the same function; sums, products and values at
rational points are exact.

Trusted: `fractions.Fraction`.  No solver and no floating-point number is involved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self, TypeAlias

#: Variables with their exponents, sorted by name: ``(("s", 2), ("t", 1))`` is ``s*s*t``.
Monomial: TypeAlias = tuple[tuple[str, int], ...]

#: A rational value for each variable.
Point: TypeAlias = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A polynomial in normal form; make one with `constant`, `variable` and arithmetic.

    Attributes:
        terms: monomials with their nonzero coefficients, sorted by monomial.
        variables: what the polynomial depends on.
    """

    terms: tuple[tuple[Monomial, Fraction], ...] = ()
    variables: frozenset[str] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep what sets of hypotheses and substitutions ask for again and again."""
        object.__setattr__(self, "variables", frozenset([name for powers, _ in self.terms for name, _ in powers]))
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        """Of the terms."""
        return self._hash

    @classmethod
    def constant(cls, value: Fraction | int) -> Self:
        """The polynomial with this value everywhere."""
        return cls._normal([((), Fraction(value))])

    @classmethod
    def variable(cls, name: str) -> Self:
        """The polynomial that is one variable."""
        return cls._normal([(((name, 1),), Fraction(1))])

    @classmethod
    def of(cls, terms: Iterable[tuple[Monomial, Fraction]]) -> Self:
        """The polynomial with these terms, in any order and number."""
        ordered = ((tuple(sorted(monomial)), value) for monomial, value in terms)
        return cls._normal(ordered)

    @classmethod
    def _normal(cls, terms: Iterable[tuple[Monomial, Fraction]]) -> Self:
        """Collect like terms, drop those that cancel, and sort."""
        collected: dict[Monomial, Fraction] = {}
        for monomial, coefficient in terms:
            found = collected.get(monomial)
            collected[monomial] = coefficient if found is None else found + coefficient
        return cls(tuple(sorted((key, value) for key, value in collected.items() if value)))

    def __add__(self, other: Self) -> Self:
        """The exact sum."""
        return self._normal((*self.terms, *other.terms))

    def __neg__(self) -> Self:
        """The exact negative."""
        return self._normal((monomial, -value) for monomial, value in self.terms)

    def __sub__(self, other: Self) -> Self:
        """The exact difference."""
        return self + -other

    def __mul__(self, other: Self) -> Self:
        """The exact product."""
        if len(self.terms) == 1 and not self.terms[0][0]:
            return other.scaled(self.terms[0][1])
        return self._normal(
            (_product(left, right), left_value * right_value)
            for left, left_value in self.terms
            for right, right_value in other.terms
        )

    def __pow__(self, exponent: int) -> Self:
        """The exact power, for an exponent of zero or more (``0**0`` is 1).

        Raises:
            ValueError: if the exponent is negative.
        """
        if exponent < 0:
            raise ValueError(f"a polynomial has no negative power: {exponent}")
        if exponent == 0:
            return self.constant(1)
        power = self
        for _ in range(exponent - 1):
            power = power * self
        return power

    def scaled(self, factor: Fraction) -> Self:
        """The polynomial times a nonzero number."""
        return type(self)(tuple((monomial, value * factor) for monomial, value in self.terms))

    def substitute(self, values: Mapping[str, "Polynomial"]) -> "Polynomial":
        """The polynomial with others in place of variables, all at once."""
        if values.keys().isdisjoint(self.variables):
            return self
        expanded: list[tuple[Monomial, Fraction]] = []
        for monomial, coefficient in self.terms:
            kept = tuple([(name, exponent) for name, exponent in monomial if name not in values])
            part = [(kept, coefficient)]
            for name, exponent in monomial:
                if name in values:
                    power = (values[name] ** exponent).terms
                    part = [(_product(left, right), a * b) for left, a in part for right, b in power]
            expanded += part
        return Polynomial._normal(expanded)

    @property
    def constant_value(self) -> Fraction | None:
        """The value if the polynomial is a constant, else ``None``."""
        if not self.terms:
            return Fraction(0)
        (monomial, value), *others = self.terms
        return None if monomial or others else value

    def at(self, point: Point) -> Fraction:
        """The exact value at a rational point.

        Raises:
            KeyError: if the point gives no value to a variable of the polynomial.
        """
        total = Fraction(0)
        for monomial, coefficient in self.terms:
            value = coefficient
            for name, exponent in monomial:
                value *= point[name] ** exponent
            total += value
        return total

    def __str__(self) -> str:
        """The polynomial in the claim language, so that parsing it gives it back."""
        text = ""
        for monomial, coefficient in self.terms:
            powers = [name if n == 1 else f"{name}**{n}" for name, n in monomial]
            magnitude = abs(coefficient)
            factors = powers if powers and magnitude == 1 else [str(magnitude), *powers]
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} " + "*".join(factors)
        leading = "-" if text.startswith(" - ") else ""
        return leading + text[3:] if text else "0"


def _product(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials: exponents add."""
    if not left:
        return right
    exponents = dict(left)
    for name, exponent in right:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted(exponents.items()))
