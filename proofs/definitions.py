"""New variables, and what is known of them: what no polynomial expresses, when a source is run on symbols.

A quotient, a root, the larger of two numbers or a rounded result becomes a variable with *definitions*: atoms that hold
of it and nothing else.  An operation on the same operands gives the same variable.

Claimed: the atoms say what the operations mean (`symbolic` lists them).  Trusted: this reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.polynomials import Polynomial


class Definitions:
    """New variables and what is known of them, in the order of the run."""

    def __init__(self, prefix: str = "", positive: frozenset[str] = frozenset()) -> None:
        """Start with no variable.

        Args:
            prefix: begins the name of every new variable.
            positive: variables that a precondition says are positive, so that they are their own magnitude.
        """
        self.prefix = prefix
        self._positive = {Polynomial.variable(name) for name in positive}
        self.atoms: list[Atom] = []
        self._count: dict[str, int] = {}
        self._made: dict[tuple[str, tuple[Polynomial, ...]], Polynomial] = {}

    def variable(self, kind: str) -> Polynomial:
        """A new variable, named by its kind and a number."""
        self._count[kind] = self._count.get(kind, 0) + 1
        return Polynomial.variable(f"{self.prefix}{kind}{self._count[kind]}")

    def once(self, kind: str, operands: tuple[Polynomial, ...], define: Callable[[Polynomial], None]) -> Polynomial:
        """The variable that an operation on these operands gives: the same one for the same operands."""
        key = (kind, operands)
        if key not in self._made:
            variable = self.variable(kind)
            define(variable)
            self._made[key] = variable
        return self._made[key]

    def operands(self, variable: Polynomial) -> tuple[Polynomial, ...]:
        """What a quotient, a root, a magnitude or an extreme was made of."""
        return next((operands for (_, operands), made in self._made.items() if made == variable), ())

    def made_of(self, names: Iterable[str]) -> frozenset[str]:
        """The variables that some were made of, directly or not, with what was made beside them."""
        found = set(names)
        for (_, operands), variable in self._made.items():
            if any(not found.isdisjoint(operand.variables) for operand in operands):
                found |= variable.variables
        relative = {name.replace("rounded", "relative") for name in found}
        return frozenset((found | relative) - set(names))

    def at_least(self, left: Polynomial, right: Polynomial) -> None:
        """Define `left >= right`."""
        self._state(Atom(left - right, Relation.AT_LEAST))

    def equal(self, left: Polynomial, right: Polynomial) -> None:
        """Define `left == right`."""
        self._state(Atom(left - right, Relation.EQUAL))

    def _state(self, atom: Atom) -> None:
        if not atom.trivial:
            self.atoms.append(atom.normal())

    def quotient(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a / b`, for `b` that is not zero."""
        divisor = b.constant_value
        if divisor:
            return a.scaled(1 / divisor)
        return self.once("quotient", (a, b), lambda q: self.equal(q * b, a))

    def root(self, a: Polynomial) -> Polynomial:
        """The square root."""

        def define(s: Polynomial) -> None:
            self.at_least(s, Polynomial())
            self.equal(s * s, a)

        return self.once("root", (a,), define)

    def magnitude(self, a: Polynomial) -> Polynomial:
        """The magnitude."""
        for known in (a, -a):
            if known in self._positive:
                return known

        def define(x: Polynomial) -> None:
            self.at_least(x, Polynomial())
            self.equal(x * x, a * a)

        return self.once("magnitude", (a,), define)

    def extreme(self, a: Polynomial, b: Polynomial, *, largest: bool) -> Polynomial:
        """The larger or the smaller of two."""
        sign = Polynomial.constant(1 if largest else -1)

        def define(x: Polynomial) -> None:
            self.at_least(sign * x, sign * a)
            self.at_least(sign * x, sign * b)
            self.equal((x - a) * (x - b), Polynomial())

        return self.once("largest" if largest else "least", (a, b), define)

    def root_above(self, a: Polynomial) -> Polynomial:
        """A number at least the square root."""

        def define(s: Polynomial) -> None:
            self.at_least(s, Polynomial())
            self.at_least(s * s, a)

        return self.once("root_above", (a,), define)
