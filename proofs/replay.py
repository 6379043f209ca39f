"""Replays a proof file: data in, theorems out.  This and the kernel are all that a proof asks anybody to trust.

A proof file is JSON.  `polynomials` are lists of terms, a term a coefficient followed by its variables and exponents:
`[["-1/2", "x", 2, "y", 1], ["3"]]` is `3 - x*x*y/2`.  `steps` are applications of the kernel's rules, in order; they
name polynomials and earlier steps by position, and an atom is a relation with a polynomial.  `theorems` gives names to
what was proved: a claim may take several atoms, so a name stands for a list of steps.

    ["assume", atom]                                   ["cut", first, second]
    ["certify", [atom, ...], goal, [refutation, ...]]  ["cases", first, second, polynomial]
    ["instantiate", step, {variable: polynomial}]      ["eliminate_root", step, variable, polynomial, exists]
                                                       ["eliminate_reciprocal", step, variable, polynomial, exists]

Claimed: every theorem returned was made by the kernel in this process; whatever the file says, nothing else comes out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from guarded_moments.proofs import kernel
from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.kernel import KernelError, Multiple, Product, Refutation, Theorem
from guarded_moments.proofs.polynomials import Polynomial

_Item = TypeVar("_Item")


class ProofFileError(ValueError):
    """A proof file is not one, or a step in it is not a proof; the message says where."""


def replay(text: str) -> Mapping[str, tuple[Theorem, ...]]:
    """Check every step of a proof file.

    Args:
        text: the file's content.

    Returns:
        The theorems that the file names.

    Raises:
        ProofFileError: a step is wrong.
    """
    theorems: list[Theorem] = []
    try:
        data = json.loads(text)
        reader = _Reader([_polynomial(terms) for terms in data["polynomials"]])
        for step in data["steps"]:
            theorems.append(reader.apply(step, theorems))
        return {name: tuple(_at(theorems, step) for step in steps) for name, steps in data["theorems"].items()}
    except KernelError as error:
        raise ProofFileError(f"step {len(theorems)}: {error}") from error
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ProofFileError(f"not a proof file, near step {len(theorems)}: {error!r}") from error


class _Reader:
    """Turns the data of steps into calls of the kernel."""

    def __init__(self, polynomials: Sequence[Polynomial]) -> None:
        self._polynomials = polynomials

    def apply(self, step: Sequence[Any], theorems: Sequence[Theorem]) -> Theorem:  # noqa: PLR0911 - one a rule
        match step:
            case ["assume", atom]:
                return kernel.assume(self._atom(atom))
            case ["certify", hypotheses, goal, refutations]:
                facts = [self._atom(atom) for atom in hypotheses]
                return kernel.certify(facts, self._atom(goal), [self._refutation(given) for given in refutations])
            case ["instantiate", of, values]:
                polynomials = {name: self._at(index) for name, index in values.items()}
                return kernel.instantiate(_at(theorems, of), polynomials)
            case ["cut", first, second]:
                return kernel.cut(_at(theorems, first), _at(theorems, second))
            case ["cases", first, second, polynomial]:
                return kernel.cases(_at(theorems, first), _at(theorems, second), self._at(polynomial))
            case ["eliminate_root", of, name, polynomial, exists]:
                return kernel.eliminate_root(_at(theorems, of), name, self._at(polynomial), _at(theorems, exists))
            case ["eliminate_reciprocal", of, name, polynomial, exists]:
                return kernel.eliminate_reciprocal(_at(theorems, of), name, self._at(polynomial), _at(theorems, exists))
            case _:
                raise KernelError(f"there is no such rule: {str(step)[:80]}")

    def _at(self, index: int) -> Polynomial:
        return _at(self._polynomials, index)

    def _atom(self, atom: Sequence[Any]) -> Atom:
        relation, polynomial = atom
        return Atom(self._at(polynomial), Relation(relation))

    def _refutation(self, given: Sequence[Any]) -> Refutation:
        products, multiples = given
        return Refutation(
            tuple(Product(Fraction(f), tuple(facts), tuple(map(self._at, squares))) for f, facts, squares in products),
            tuple(Multiple(fact, self._at(multiplier)) for fact, multiplier in multiples),
        )


def _polynomial(terms: Sequence[Sequence[Any]]) -> Polynomial:
    return Polynomial.of((_monomial(powers), Fraction(value)) for value, *powers in terms)


def _monomial(powers: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    pairs = tuple(zip(powers[::2], powers[1::2], strict=True))
    names = {name for name, _ in pairs}
    if len(names) != len(pairs) or not all(type(n) is str and type(e) is int and e > 0 for n, e in pairs):
        raise ProofFileError(f"not a monomial: {powers}")
    return pairs


def _at(items: Sequence[_Item], index: int) -> _Item:
    """An item by its position, which must be one: a negative number would count from the end."""
    if type(index) is not int or not 0 <= index < len(items):
        raise KernelError(f"there is nothing at {index!r}")
    return items[index]
