"""What the guard evaluates: its source run on symbols in binary64, beside the same source over the reals.

The guard's bound is computed from rounded constants by rounded operations, multiplied with `bound_inflation` and then
compared.  The statement here is about that very number, `compared`: it is at least the exact bound.

    operation  f == x*(1 + d), |d| <= mu, x exact on rounded operands      mu = 2**-53, t = 1 - mu
    root       the same r, and f within one unit in the last place of it: t*t*r <= f, t*t*f <= r
    constant   K <= f, t*t*f <= K: rounded up once

Claimed: `evaluation` states this of the source as it is, with the number of roundings that `RoundingCount` counts.
That no operation of the guard leaves the normal range of binary64 is computed elsewhere, for every claim
(`reference.guard.binary64_range`).  Trusted: this reading of binary64.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, final

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Statement, normalised
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.guard.closed_form import make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants, counted_constants

MU, T = Polynomial.variable("mu"), Polynomial.variable("t")
ONE, ZERO = Polynomial.constant(1), Polynomial()
INFLATION, COMPARED = Polynomial.variable("inflation"), Polynomial.variable("compared")
#: The constants that are never zero: the guard divides by eps and by TINY.
POSITIVE = ("eps", "tiny")


@final
class Binary64Arithmetic:
    """Binary64 by the standard model without underflow: `SignedArithmetic[Polynomial]`."""

    def __init__(self, definitions: Definitions) -> None:
        """Define every rounded result in `definitions`."""
        self.definitions = definitions

    def rounded(self, exact: Polynomial) -> Polynomial:
        """What an exact result is rounded to."""

        def define(result: Polynomial) -> None:
            relative = self.definitions.variable("relative")
            self.definitions.at_least(MU, relative)
            self.definitions.at_least(MU, -relative)
            self.definitions.equal(result, exact + exact * relative)

        return self.definitions.once("rounded", (exact,), define)

    def constant(self, value: float) -> Polynomial:
        """A number that binary64 holds."""
        return ExactArithmetic(self.definitions).constant(value)

    def add(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a + b`."""
        return self.rounded(a + b)

    def sub(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a - b`."""
        return self.rounded(a - b)

    def mul(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a * b`."""
        return self.rounded(a * b)

    def div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a / b`."""
        return self.rounded(self.definitions.quotient(a, b))

    def sqrt(self, a: Polynomial) -> Polynomial:
        """The square root, within one unit in the last place of the correctly rounded one."""
        correct = self.rounded(self.definitions.root(a))

        def define(result: Polynomial) -> None:
            self.definitions.at_least(result, T * T * correct)
            self.definitions.at_least(correct, T * T * result)

        return self.definitions.once("near", (correct,), define)

    def negate(self, a: Polynomial) -> Polynomial:
        """`-a`."""
        return -a

    def distance(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`|a - b|` of two exact inputs."""
        return self.rounded(self.definitions.magnitude(a - b))

    def absolute(self, a: Polynomial) -> Polynomial:
        """`|a|`."""
        return self.definitions.magnitude(a)

    def minimum(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The smaller."""
        return self.definitions.extreme(a, b, largest=False)

    def maximum(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The larger."""
        return self.definitions.extreme(a, b, largest=True)


#: The constants of the formula, and what binary64 holds of them.
EXACT = GuardConstants(*(Polynomial.variable(name) for name in GuardConstants._fields))
HELD = GuardConstants(*(Polynomial.variable(f"held_{name}") for name in GuardConstants._fields))


def binary64_hypotheses() -> list[Atom]:
    """What is known of the unit roundoff `mu`, of `t = 1 - mu`, and of the constants that binary64 holds."""
    stated = [Atom(MU, Relation.ABOVE), _at_least(ONE.scaled(Fraction(1, 2)), MU), Atom(T + MU - ONE, Relation.EQUAL)]
    for name, value, rounded in zip(GuardConstants._fields, EXACT, HELD, strict=True):
        if name == "threshold":  # which is compared, and stands for no other number
            continue
        sign = Relation.ABOVE if name in POSITIVE else Relation.AT_LEAST
        stated += [Atom(value, sign), _at_least(rounded, value), _at_least(value, T * T * rounded)]
    return [*stated, Atom(Polynomial.variable("tiny"), Relation.ABOVE)]


class Evaluation(NamedTuple):
    """The statement about the guard's evaluation."""

    hypotheses: frozenset[Atom]
    conclusion: Atom  #: `bound <= compared`
    exact: GuardConstants[Polynomial]
    held: GuardConstants[Polynomial]
    state: tuple[Polynomial, ...]
    roundings: int  #: as `RoundingCount` counts them
    bound: Polynomial
    evaluated: Polynomial
    floats: Definitions  #: of the evaluation in binary64


def rounding_count() -> int:
    """How often the guard's bound is rounded."""
    op = RoundingCount()
    return make_deviation_bound(op)(counted_constants(), *[op.exact] * 4)


def evaluation() -> Evaluation:
    """Run the guard's source twice, over the reals and in binary64."""
    state = tuple(Polynomial.variable(prefix + name) for prefix in (NATIVE, RECOVERED) for name in STATE)
    guard, floats = Definitions("guard_"), Definitions("float_")
    bound = make_deviation_bound(ExactArithmetic(guard))(EXACT, *state)
    evaluated = make_deviation_bound(Binary64Arithmetic(floats))(HELD, *state)
    count = rounding_count()
    stated = [*guard.atoms, *floats.atoms, _at_least(state[1], ZERO), _at_least(state[3], ZERO)]
    stated += binary64_hypotheses()
    last = Polynomial.variable("float_last")
    stated += [_at_least(MU, last), _at_least(MU, -last), _at_least(INFLATION * T ** (count + 1), ONE)]
    stated += [_at_least(INFLATION, ZERO), Atom(COMPARED - (evaluated * INFLATION) * (ONE + last), Relation.EQUAL)]
    return Evaluation(
        normalised(stated), _at_least(COMPARED, bound), EXACT, HELD, state, count, bound, evaluated, floats
    )


class Accepted(NamedTuple):
    """The theorem about one family down to the number that is compared with the tolerance."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `|U_hat - U| <= compared`


def accepted(stated: Statement, evaluated: Evaluation) -> Accepted:
    """Put the statement of a family and that of the evaluation together: the constants are the family's."""
    values = {name: getattr(stated.constants, name) for name in GuardConstants._fields}
    of_evaluation = (atom.substitute(values) for atom in evaluated.hypotheses)
    hypotheses = stated.hypotheses.union(atom for atom in of_evaluation if not atom.trivial)
    difference = stated.recovered.update - stated.native.update
    return Accepted(hypotheses, (_at_least(COMPARED, difference), _at_least(COMPARED, -difference)))


def _at_least(left: Polynomial, right: Polynomial) -> Atom:
    return Atom(left - right, Relation.AT_LEAST).normal()
