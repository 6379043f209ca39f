"""The numbers of a real run, put into a statement: whether its hypotheses and its conclusion are true of them."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mpf

from guarded_moments.proofs import Atom, Polynomial, Relation
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.symbolic import Rounding
from guarded_moments.reference.floats import BINARY32

PRECISION = 500
#: How far an equation may be off at this precision, relative to its largest term.
_TOLERANCE = mpf(2) ** -400


class Run:
    """The value of every variable of a statement, in one run of the program and of the guard."""

    def __init__(
        self, given: dict[str, mpf], definitions: Iterable[Definitions], roundings: Sequence[Rounding]
    ) -> None:
        self.values = dict(given)
        self._made = {
            next(iter(variable.variables)): (kind, operands)
            for one in definitions
            for (kind, operands), variable in one._made.items()
        }
        self._rounding_of = {next(iter(r.result.variables)): r for r in roundings}
        for r in roundings:
            for part in (r.relative, r.absolute):
                self._rounding_of.update(dict.fromkeys(part.variables, r))

    def of(self, polynomial: Polynomial) -> mpf:
        """The value of a polynomial."""
        return sum((self.term(monomial, value) for monomial, value in polynomial.terms), mpf(0))

    def term(self, monomial: tuple[tuple[str, int], ...], value: object) -> mpf:
        """The value of one of its terms."""
        total = mpf(value.numerator) / value.denominator  # type: ignore[attr-defined]
        for name, exponent in monomial:
            total *= self.variable(name) ** exponent
        return total

    def variable(self, name: str) -> mpf:
        """The value of a variable, computed when it is first asked for."""
        if name not in self.values:
            if name in self._rounding_of:
                self._round(self._rounding_of[name])
            elif name.startswith("float_relative"):
                result = name.replace("relative", "rounded")
                (exact,) = (self.of(x) for x in self._made[result][1])
                self.values[name] = (self.variable(result) - exact) / exact if exact else mpf(0)
            else:
                kind, operands = self._made[name]
                self.values[name] = _MEANING[kind](*(self.of(operand) for operand in operands))
        return self.values[name]

    def _round(self, rounding: Rounding) -> None:
        exact = self.of(rounding.exact)
        # A root of the platform may err by another unit in the last place: here it does.
        rounded = nearest(exact, BINARY32.precision)
        if rounding.rate == Polynomial.variable("u").scaled(Fraction(3)):
            rounded = mpf(float(np.nextafter(np.float32(rounded), np.float32(np.inf))))
        self.values[next(iter(rounding.result.variables))] = rounded
        self.values[next(iter(rounding.relative.variables))] = (rounded - exact) / exact if exact else mpf(0)
        for name in rounding.absolute.variables:
            self.values[name] = mpf(0)

    def hold(self, exact: dict[str, mpf]) -> None:
        """Constants as binary64 holds them: rounded up once; and what is known of its roundings."""
        for name, value in exact.items():
            held = nearest(value, 53)
            self.values[f"held_{name}"] = (
                held if held >= value else nearest(value * (1 + mpf(2) ** -53 * mpf("1.5")), 53)
            )
        self.values |= {"mu": mpf(2) ** -53, "t": 1 - mpf(2) ** -53}

    def holds(self, atom: Atom) -> bool:
        """Whether an atom is true, up to the precision."""
        terms = [self.term(monomial, value) for monomial, value in atom.polynomial.terms]
        size, total = max((abs(term) for term in terms), default=mpf(0)), sum(terms, mpf(0))
        if atom.relation is Relation.EQUAL:
            return bool(abs(total) <= size * _TOLERANCE)
        return bool(total >= -size * _TOLERANCE) if atom.relation is Relation.AT_LEAST else bool(total > 0)


def nearest(value: mpf, precision: int) -> mpf:
    with mpmath.workprec(precision):
        return +value


_MEANING = {
    "quotient": lambda a, b: a / b,
    "root": mpmath.sqrt,
    "magnitude": abs,
    "largest": max,
    "least": min,
    "root_above": lambda a: mpmath.sqrt(a) * (1 + mpf(2) ** -100),
    "rounded": lambda a: nearest(a, 53),
    "near": lambda a: mpf(float(np.nextafter(float(a), np.inf))),
}
