"""Arithmetics of symbols: the program's own source, run here, says what a theorem is about.

An element is a polynomial in named real variables.  What no polynomial expresses (a quotient, a root, the larger of two
numbers, a rounded result) becomes a new variable with *definitions*: atoms that hold of it and nothing else.  So the
Adam step, the guard and its constants yield the hypotheses and the conclusion of the theorem by being run, and a
change of their source is a change of the statement.

    quotient  q*b == a                      largest  x >= a, x >= b, (x - a)*(x - b) == 0
    root      s >= 0, s*s == a              rounded  r == x*(1 + d) + h, |d| <= u, |h| <= n (no h in sums)
    magnitude x >= 0, x*x == a*a            binary64 r == x*(1 + d), |d| <= 2**-53 (no underflow)

Claimed: the definitions say what the operations mean, and a rounded result is what IEEE 754's rounding to nearest
allows (the standard model; a sum of two numbers of a format never underflows).  Trusted: this reading.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple, cast, final

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.reference.guard.constants import TINY


@final
class Symbol:
    """A number of the exact constants: a polynomial, with the arithmetic that Python's operators spell."""

    def __init__(self, polynomial: Polynomial, definitions: Definitions) -> None:
        """Hold a polynomial whose quotients go into `definitions`."""
        self.polynomial = polynomial
        self._definitions = definitions

    def _lift(self, other: object) -> Polynomial:
        if isinstance(other, Symbol):
            return other.polynomial
        if isinstance(other, int | Fraction):
            return Polynomial.constant(other)
        raise TypeError(f"not an exact number: {other!r}")

    def _new(self, polynomial: Polynomial) -> Symbol:
        return Symbol(polynomial, self._definitions)

    def __add__(self, other: object) -> Symbol:
        return self._new(self.polynomial + self._lift(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> Symbol:
        return self._new(self.polynomial - self._lift(other))

    def __rsub__(self, other: object) -> Symbol:
        return self._new(self._lift(other) - self.polynomial)

    def __mul__(self, other: object) -> Symbol:
        return self._new(self.polynomial * self._lift(other))

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Symbol:
        return self._new(self._definitions.quotient(self.polynomial, self._lift(other)))

    def __rtruediv__(self, other: object) -> Symbol:
        return self._new(self._definitions.quotient(self._lift(other), self.polynomial))

    def __pow__(self, exponent: int) -> Symbol:
        return self._new(self.polynomial**exponent)

    def __abs__(self) -> Symbol:
        return self._new(self._definitions.magnitude(self.polynomial))


def as_number(symbol: Symbol) -> Fraction:
    """A symbol for code that is written for exact numbers and uses their arithmetic alone."""
    return cast("Fraction", symbol)


def polynomial_of(value: Any) -> Polynomial:  # noqa: ANN401 - what such code returns: a Fraction to the type checker
    """The polynomial of such code's result."""
    return value.polynomial if isinstance(value, Symbol) else Polynomial.constant(value)


@final
class ExactArithmetic:
    """Real arithmetic: `SignedArithmetic[Polynomial]`, in which nothing is rounded."""

    def __init__(self, definitions: Definitions) -> None:
        """Define what is not a polynomial in `definitions`."""
        self._definitions = definitions

    def constant(self, value: float) -> Polynomial:
        """A number; TINY is the variable `tiny`, of which the statement assumes no more than it needs."""
        return Polynomial.variable("tiny") if value == TINY else Polynomial.constant(Fraction(value))

    def add(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a + b`."""
        return a + b

    def mul(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a * b`."""
        return a * b

    def div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a / b`."""
        return self._definitions.quotient(a, b)

    def sqrt(self, a: Polynomial) -> Polynomial:
        """The square root."""
        return self._definitions.root(a)

    def sub(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a - b`."""
        return a - b

    def negate(self, a: Polynomial) -> Polynomial:
        """`-a`."""
        return -a

    def distance(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`|a - b|`."""
        return self._definitions.magnitude(a - b)

    def absolute(self, a: Polynomial) -> Polynomial:
        """`|a|`."""
        return self._definitions.magnitude(a)

    def minimum(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The smaller."""
        return self._definitions.extreme(a, b, largest=False)

    def maximum(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The larger."""
        return self._definitions.extreme(a, b, largest=True)


class Rounding(NamedTuple):
    """One rounded operation: `result == exact*(1 + relative) + absolute`."""

    result: Polynomial
    exact: Polynomial
    relative: Polynomial
    rate: Polynomial  #: bounds `relative`
    absolute: Polynomial  #: zero where nothing underflows
    floor: Polynomial  #: bounds `absolute`


@final
class RoundedArithmetic:
    """Rounding to nearest in any binary format: `Arithmetic[Polynomial]`, by the standard model.

    `u` is the unit roundoff and `n` half the smallest subnormal.  The platform's root is within one unit in the last
    place of the correctly rounded one, so within three half units of the exact one.
    """

    def __init__(self, definitions: Definitions) -> None:
        """Define every rounded result in `definitions`."""
        self._definitions = definitions
        self.roundings: list[Rounding] = []

    def _rounded(self, exact: Polynomial, *, rate: int = 1, underflows: bool = True) -> Polynomial:
        definitions, zero = self._definitions, Polynomial()
        result, relative = definitions.variable("rounded"), definitions.variable("relative")
        absolute = definitions.variable("absolute") if underflows else zero
        bound = Polynomial.variable("u").scaled(Fraction(rate))
        floor = Polynomial.variable("n") if underflows else zero
        for error, most in ((relative, bound), (absolute, floor)):
            definitions.at_least(most, error)
            definitions.at_least(most, -error)
        definitions.equal(result, exact + exact * relative + absolute)
        self.roundings.append(Rounding(result, exact, relative, bound, absolute, floor))
        return result

    def constant(self, value: float) -> Polynomial:
        """A number, exactly."""
        return Polynomial.constant(Fraction(value))

    def add(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a + b`."""
        return self._rounded(a + b, underflows=False)

    def sub(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a - b`."""
        return self._rounded(a - b, underflows=False)

    def mul(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a * b`."""
        return self._rounded(a * b)

    def product(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a * b`, not rounded."""
        return a * b

    def div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a / b`."""
        return self._rounded(self._definitions.quotient(a, b))

    def fma(self, a: Polynomial, b: Polynomial, c: Polynomial) -> Polynomial:
        """`a * b + c`, rounded once."""
        return self._rounded(a * b + c)

    def sqrt(self, a: Polynomial) -> Polynomial:
        """The square root."""
        return self._rounded(self._definitions.root(a), underflows=False)

    def platform_sqrt(self, a: Polynomial) -> Polynomial:
        """The square root of the platform."""
        return self._rounded(self._definitions.root(a), rate=3, underflows=False)

    def negate(self, a: Polynomial) -> Polynomial:
        """`-a`."""
        return -a

    def select_less(self, a: Polynomial, b: Polynomial, if_less: Polynomial, otherwise: Polynomial) -> Polynomial:
        """The larger of both, as amsgrad takes it; no other choice is in an update."""
        if (if_less, otherwise) != (b, a):
            raise NotImplementedError("the update of the theorem takes no choice but the larger of two")
        return self._definitions.extreme(a, b, largest=True)

    def select_nan(self, a: Polynomial, if_nan: Polynomial, otherwise: Polynomial) -> Polynomial:  # noqa: ARG002 - none
        """`otherwise`: a number is not NaN."""
        return otherwise
