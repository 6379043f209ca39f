"""Finds refutations: facts multiplied with each other and added up until nothing is left but a positive number.

Products of a few facts are candidates, and exact linear programming (z3's simplex over the rationals) finds nonnegative
factors with which they cancel (Positivstellensatz, Handelman's form).  Limits count candidates and degrees, never time.

Claimed: nothing; what is found is checked by `kernel.certify`, and where nothing is found there may still be a proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import z3

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.kernel import Multiple, Product, Refutation, negations
from guarded_moments.proofs.polynomials import Monomial, Polynomial

_ONE = Polynomial.constant(1)
_MOST_CANDIDATES = 6000
#: Tried in turn: facts in a product, degree of a product, degree of an equation's multiplier.
LADDER = ((1, 1, 0), (2, 2, 1), (2, 3, 1), (3, 3, 2), (3, 4, 2), (4, 4, 2), (3, 6, 3), (4, 6, 3))


class NotFoundError(LookupError):
    """No refutation among the candidates."""


@dataclass(frozen=True)
class Hints:
    """Where to look.

    Attributes:
        ladder: limits to try in turn, see `LADDER`.
        squares: polynomials whose squares may enter, alone and beside one fact.
        products: if given, the only products of facts to try, each by its facts' positions (besides the negated goal).
    """

    ladder: tuple[tuple[int, int, int], ...] = LADDER
    squares: tuple[Polynomial, ...] = ()
    products: tuple[tuple[int, ...], ...] | None = None


def find_refutations(hypotheses: Sequence[Atom], goal: Atom, hints: Hints | None = None) -> tuple[Refutation, ...]:
    """Find what `kernel.certify` needs to prove a goal.

    Args:
        hypotheses: the facts, in normal form.
        goal: the goal, in normal form.
        hints: where to look.

    Raises:
        NotFoundError: there is none within the limits.
    """
    hints = hints or Hints()
    return tuple(_find([*hypotheses, negation], goal, hints) for negation in negations(goal))


def _find(facts: Sequence[Atom], goal: Atom, hints: Hints) -> Refutation:
    for most, degree, multiplier_degree in hints.ladder:
        if hints.products is None and degree < _degree(goal.polynomial):
            continue
        products = _dedup(_products(facts, hints, most, degree))
        multiples = list(_multiples(facts, multiplier_degree, degree))
        found = _solve(*_prune(products, multiples))
        if found is not None:
            return found
    raise NotFoundError(f"no refutation of the negation of {goal} among products of {[str(fact) for fact in facts]}")


@dataclass(frozen=True)
class _Candidate:
    polynomial: Polynomial
    product: Product
    strict: bool


@dataclass(frozen=True)
class _EquationCandidate:
    polynomial: Polynomial
    fact: int
    monomial: Monomial


def _products(facts: Sequence[Atom], hints: Hints, most: int, degree: int) -> Iterator[_Candidate]:
    usable = [index for index, fact in enumerate(facts) if fact.relation is not Relation.EQUAL]
    if hints.products is not None:
        chosen: Iterable[tuple[int, ...]] = [(), (len(facts) - 1,), *hints.products]
    else:
        chosen = [c for size in range(most + 1) for c in combinations_with_replacement(usable, size)]
    for indices in chosen:
        if hints.products is None and sum(_degree(facts[index].polynomial) for index in indices) > degree:
            continue
        product = _ONE
        for index in indices:
            product *= facts[index].polynomial
        strict = all(facts[index].relation is Relation.ABOVE for index in indices)
        yield _Candidate(product, Product(Fraction(1), indices, ()), strict)
    for square in hints.squares:
        squared = square * square
        yield _Candidate(squared, Product(Fraction(1), (), (square,)), strict=False)
        for index in usable:
            if _degree(squared) + _degree(facts[index].polynomial) <= degree:
                beside = Product(Fraction(1), (index,), (square,))
                yield _Candidate(squared * facts[index].polynomial, beside, strict=False)


def _dedup(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    kept = {(candidate.polynomial, candidate.strict): candidate for candidate in reversed(list(candidates))}
    return list(reversed(kept.values()))


def _multiples(facts: Sequence[Atom], multiplier_degree: int, degree: int) -> Iterator[_EquationCandidate]:
    names = sorted(frozenset[str]().union(*(fact.polynomial.variables for fact in facts)))
    monomials = [
        tuple(sorted(Counter(choice).items()))
        for size in range(multiplier_degree + 1)
        for choice in combinations_with_replacement(names, size)
    ]
    for index, fact in enumerate(facts):
        if fact.relation is Relation.EQUAL:
            for monomial in monomials:
                product = fact.polynomial * Polynomial.of([(monomial, Fraction(1))])
                if _degree(product) <= degree:
                    yield _EquationCandidate(product, index, monomial)


def _prune(
    products: list[_Candidate], multiples: list[_EquationCandidate]
) -> tuple[list[_Candidate], list[_EquationCandidate]]:
    """Drop what has a monomial that nothing else could cancel, until nothing has."""
    while True:
        polynomials = [c.polynomial for c in products] + [c.polynomial for c in multiples]
        count = Counter(key for polynomial in polynomials for key, _ in polynomial.terms)
        kept = [c for c in products if all(count[key] > 1 for key, _ in c.polynomial.terms)]
        kept_multiples = [c for c in multiples if all(count[key] > 1 for key, _ in c.polynomial.terms)]
        if len(kept) == len(products) and len(kept_multiples) == len(multiples):
            return kept, kept_multiples
        products, multiples = kept, kept_multiples


def _solve(products: list[_Candidate], multiples: list[_EquationCandidate]) -> Refutation | None:
    """Factors with which everything cancels, by exact linear programming."""
    if not any(c.strict for c in products) or len(products) + len(multiples) > _MOST_CANDIDATES:
        return None
    context = z3.Context()
    solver = z3.SolverFor("QF_LRA", ctx=context)
    solver.set("rlimit", 40_000_000)
    factors = [z3.Real(f"f{i}", ctx=context) for i in range(len(products))]
    free = [z3.Real(f"m{i}", ctx=context) for i in range(len(multiples))]
    rows: dict[Monomial, list[Any]] = {}
    polynomials = [c.polynomial for c in products] + [c.polynomial for c in multiples]
    for variable, polynomial in zip([*factors, *free], polynomials, strict=True):
        for monomial, value in polynomial.terms:
            rows.setdefault(monomial, []).append(z3.RealVal(str(value), ctx=context) * variable)
    solver.add([factor >= 0 for factor in factors])
    solver.add([z3.Sum(row) == 0 for row in rows.values()])
    solver.add(z3.Sum([f for f, c in zip(factors, products, strict=True) if c.strict]) == 1)
    if solver.check() != z3.sat:
        return None
    model = solver.model()

    def value_of(variable: Any) -> Fraction:  # noqa: ANN401 - z3 is published without types
        value = model.eval(variable, model_completion=True)
        return Fraction(value.numerator_as_long(), value.denominator_as_long())

    used = tuple(
        candidate.product._replace(factor=value)
        for variable, candidate in zip(factors, products, strict=True)
        if (value := value_of(variable))
    )
    multipliers: dict[int, Polynomial] = {}
    for variable, candidate in zip(free, multiples, strict=True):
        if value := value_of(variable):
            term = Polynomial.of([(candidate.monomial, value)])
            multipliers[candidate.fact] = multipliers.get(candidate.fact, Polynomial()) + term
    return Refutation(used, tuple(Multiple(fact, multiplier) for fact, multiplier in multipliers.items()))


def _degree(polynomial: Polynomial) -> int:
    return max((sum(exponent for _, exponent in monomial) for monomial, _ in polynomial.terms), default=0)
