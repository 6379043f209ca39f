"""The kernel: theorems about real numbers, and the only ways to make one.

A `Theorem` says: wherever its hypotheses hold, its conclusion holds, for all real values of all variables.  A theorem
is made by checking a certificate, or from other theorems, and by nothing else (the manner of LCF).  Statements are
atoms: a polynomial with rational coefficients is at least, above, or equal to zero.  Nothing about floating-point
numbers is in here: a rounding enters a theorem as hypotheses that everybody can read.

Claimed: every theorem is true.  Trusted: this module, `polynomials`, `atoms`, and Python's `fractions`.  No solver and
no search is imported: whoever found a proof need not be believed.  (Python cannot stop a program from forging an
object in its own process; what counts is the replay of a proof file, `proofs.replay`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, final

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.polynomials import Polynomial

_ONE = Polynomial.constant(1)
_KEY = object()


class KernelError(ValueError):
    """A step is not a proof; the message says why."""


class Product(NamedTuple):
    """A term of a refutation: a factor at least zero, times facts that are at least zero, times squares."""

    factor: Fraction
    facts: tuple[int, ...]  #: positions among the facts; none may be an equation
    squares: tuple[Polynomial, ...]  #: each enters squared


class Multiple(NamedTuple):
    """A term of a refutation: any polynomial, times a fact that is an equation."""

    fact: int
    multiplier: Polynomial


class Refutation(NamedTuple):
    """Why facts contradict each other: these terms sum to the zero polynomial, though one of them is positive."""

    products: tuple[Product, ...]
    multiples: tuple[Multiple, ...] = ()


@final
class Theorem:
    """`hypotheses |- conclusion`, atoms in normal form; trivial hypotheses are left out."""

    __slots__ = ("conclusion", "hypotheses")
    hypotheses: frozenset[Atom]
    conclusion: Atom

    def __init__(self, key: object, hypotheses: frozenset[Atom], conclusion: Atom) -> None:
        _require(key is _KEY, "only the kernel makes theorems")
        object.__setattr__(self, "hypotheses", hypotheses)
        object.__setattr__(self, "conclusion", conclusion)

    def __setattr__(self, name: str, value: object) -> None:
        raise KernelError(f"a theorem does not change: {name}")

    @property
    def variables(self) -> frozenset[str]:
        """All variables that occur."""
        return _variables(self.hypotheses | {self.conclusion})


def assume(atom: Atom) -> Theorem:
    """`a |- a`."""
    atom = atom.normal()
    return Theorem(_KEY, _nontrivial([atom]), atom)


def certify(hypotheses: Sequence[Atom], goal: Atom, refutations: Sequence[Refutation]) -> Theorem:
    """`hypotheses |- goal`, because the hypotheses and the goal's negation contradict each other.

    Args:
        hypotheses: the facts, in the order that the refutations count them; the goal's negation comes last.
        goal: the conclusion.
        refutations: one, or two for an equation: of `goal < 0`, then of `goal > 0`.
    """
    hypotheses, goal = [atom.normal() for atom in hypotheses], goal.normal()
    _require(len(refutations) == len(negations(goal)), "an equation needs two refutations, another goal one")
    for negation, refutation in zip(negations(goal), refutations, strict=True):
        _check([*hypotheses, negation], refutation)
    return Theorem(_KEY, _nontrivial(hypotheses), goal)


def negations(goal: Atom) -> tuple[Atom, ...]:
    """What contradicts a goal; one of these holds wherever the goal does not."""
    opposite = -goal.polynomial
    if goal.relation is Relation.ABOVE:
        return (Atom(opposite, Relation.AT_LEAST),)
    above = Atom(opposite, Relation.ABOVE)
    return (above,) if goal.relation is Relation.AT_LEAST else (above, Atom(goal.polynomial, Relation.ABOVE))


def _check(facts: Sequence[Atom], refutation: Refutation) -> None:
    """Raise unless the terms sum to zero and a positive factor stands on strict facts alone."""
    total: dict[object, Fraction] = {}
    positive = False
    terms = []
    for factor, indices, squares in refutation.products:
        _require(factor >= 0, "a factor is negative")
        product = Polynomial.constant(factor)
        for index in indices:
            fact = _fact(facts, index)
            _require(fact.relation is not Relation.EQUAL, "an equation stands in a product")
            product *= fact.polynomial
        for square in squares:
            product = product * square * square
        strict = not squares and all(facts[index].relation is Relation.ABOVE for index in indices)
        positive = positive or (factor > 0 and strict)
        terms.append(product)
    for index, multiplier in refutation.multiples:
        fact = _fact(facts, index)
        _require(fact.relation is Relation.EQUAL, "only an equation takes a multiplier of any sign")
        terms.append(multiplier * fact.polynomial)
    for term in terms:
        for monomial, value in term.terms:
            total[monomial] = total.get(monomial, Fraction(0)) + value
    _require(positive, "no term is positive")
    _require(not any(total.values()), "the terms do not cancel")


def instantiate(theorem: Theorem, values: Mapping[str, Polynomial]) -> Theorem:
    """The theorem with polynomials in place of variables, all at once."""
    _theorems(theorem)
    hypotheses = (atom.substitute(values) for atom in theorem.hypotheses)
    return Theorem(_KEY, _nontrivial(hypotheses), theorem.conclusion.substitute(values))


def cut(first: Theorem, second: Theorem) -> Theorem:
    """`A |- a` and `B, a |- b` give `A, B |- b`."""
    _theorems(first, second)
    _require(first.conclusion in second.hypotheses, "the first conclusion is no hypothesis of the second")
    return Theorem(_KEY, first.hypotheses | (second.hypotheses - {first.conclusion}), second.conclusion)


def cases(first: Theorem, second: Theorem, polynomial: Polynomial) -> Theorem:
    """`A, p >= 0 |- c` and `B, -p >= 0 |- c` give `A, B |- c`."""
    _theorems(first, second)
    _require(first.conclusion == second.conclusion, "the cases conclude different things")
    one, other = (Atom(p, Relation.AT_LEAST).normal() for p in (polynomial, -polynomial))
    return Theorem(_KEY, (first.hypotheses - {one}) | (second.hypotheses - {other}), first.conclusion)


def eliminate_root(theorem: Theorem, name: str, radicand: Polynomial, exists: Theorem) -> Theorem:
    """`A, s >= 0, s*s == y |- c` and `B |- y >= 0` give `A, B |- c`, for `s` that occurs nowhere else."""
    root = Polynomial.variable(name)
    definition = (Atom(root, Relation.AT_LEAST), Atom(root * root - radicand, Relation.EQUAL))
    return _eliminate(theorem, name, Atom(radicand, Relation.AT_LEAST), exists, definition)


def eliminate_reciprocal(theorem: Theorem, name: str, divisor: Polynomial, exists: Theorem) -> Theorem:
    """`A, i > 0, i*d == 1 |- c` and `B |- d > 0` give `A, B |- c`, for `i` that occurs nowhere else."""
    inverse = Polynomial.variable(name)
    definition = (Atom(inverse, Relation.ABOVE), Atom(inverse * divisor - _ONE, Relation.EQUAL))
    return _eliminate(theorem, name, Atom(divisor, Relation.ABOVE), exists, definition)


def _eliminate(theorem: Theorem, name: str, needed: Atom, exists: Theorem, definition: Iterable[Atom]) -> Theorem:
    _theorems(theorem, exists)
    _require(exists.conclusion == needed.normal(), "the existence of the number is not what was shown")
    rest = theorem.hypotheses - {atom.normal() for atom in definition}
    _require(name not in _variables({*rest, theorem.conclusion, needed}), f"{name} occurs elsewhere")
    return Theorem(_KEY, rest | exists.hypotheses, theorem.conclusion)


def _nontrivial(hypotheses: Iterable[Atom]) -> frozenset[Atom]:
    return frozenset(atom for atom in hypotheses if not atom.trivial)


def _fact(facts: Sequence[Atom], index: int) -> Atom:
    _require(0 <= index < len(facts), f"there is no fact {index}")
    return facts[index]


def _variables(atoms: Iterable[Atom]) -> frozenset[str]:
    return frozenset[str]().union(*(atom.polynomial.variables for atom in atoms))


def _theorems(*given: object) -> None:
    _require(all(type(theorem) is Theorem for theorem in given), "not a theorem")


def _require(condition: bool, reason: str) -> None:  # noqa: FBT001 - reads as a sentence where it is called
    if not condition:
        raise KernelError(reason)
