"""A derivation in progress: assumptions, what follows from them so far, and three ways to add to it.

Everything is written in the claim language.  `by` proves a claim from named facts in one certificate; `use`
instantiates a theorem and discharges its hypotheses by what is known; `assume` adds a hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import parse_claim, parse_polynomial
from guarded_moments.proofs.kernel import Refutation
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved, Recording
from guarded_moments.proofs.search import Hints, NotFoundError, find_refutations

#: A claim as text, as atoms, or several.
Stated: TypeAlias = "str | Atom | Iterable[Stated]"
#: A polynomial as text or as itself.
Value: TypeAlias = "str | Polynomial | int"


class DerivationError(RuntimeError):
    """A derivation does not go through; the message says where."""


class _Anything:
    """Every name is a variable here: a derivation is not what states a claim."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def atoms(*stated: Stated) -> list[Atom]:
    """The atoms of claims, in normal form, each once."""
    found: list[Atom] = []
    for one in stated:
        if isinstance(one, str):
            found.extend(atom.normal() for atom in parse_claim(one, _Anything()))
        elif isinstance(one, Atom):
            found.append(one.normal())
        else:
            found.extend(atoms(*one))
    return list(dict.fromkeys(atom for atom in found if not atom.trivial))


def poly(value: Value) -> Polynomial:
    """The polynomial that a text spells."""
    if isinstance(value, Polynomial):
        return value
    return parse_polynomial(str(value), _Anything())


def at_least(left: Value, right: Value) -> Atom:
    """`left >= right`."""
    return Atom(poly(left) - poly(right), Relation.AT_LEAST)


def within(value: Value, bound: Value) -> list[Atom]:
    """`abs(value) <= bound`."""
    return [at_least(bound, value), at_least(bound, -poly(value))]


class Prover:
    """The recording that all derivations share, and the refutations found so far."""

    def __init__(self, known: Mapping[tuple[tuple[Atom, ...], Atom], tuple[Refutation, ...]] | None = None) -> None:
        self.recording = Recording()
        self._known = dict(known or {})
        self.searched = 0

    def prove(self, goal: Atom, facts: Sequence[Atom], hints: Hints | None = None) -> Proved:
        """One certificate: the facts imply the goal."""
        key = (tuple(facts), goal)
        if key not in self._known:
            self.searched += 1
            self._known[key] = find_refutations(facts, goal, hints)
        return self.recording.certify(facts, goal, self._known[key])

    def lemma(self, goal: Stated, *facts: Stated, hints: Hints | None = None) -> list[Proved]:
        """A theorem for each atom of a goal."""
        return [self.prove(atom, atoms(*facts), hints) for atom in atoms(goal)]


class Context:
    """Assumptions and what follows from them; `names` abbreviate polynomials in all texts."""

    def __init__(self, prover: Prover, *stated: Stated, names: Mapping[str, Value] | None = None) -> None:
        """Start from assumptions.

        Args:
            prover: where steps are recorded.
            stated: the assumptions.
            names: what stands for what.
        """
        self.prover = prover
        self.names = {name: poly(value) for name, value in (names or {}).items()}
        self.known: dict[Atom, Proved] = {}
        self.assume(*stated)

    def poly(self, value: Value) -> Polynomial:
        """The polynomial that a text spells here."""
        return poly(value).substitute(self.names) if isinstance(value, str) else poly(value)

    def atoms(self, *stated: Stated) -> list[Atom]:
        """The atoms that texts spell here."""
        found: list[Atom] = []
        for one in stated:
            if isinstance(one, str):
                found.extend(atom.substitute(self.names) for atom in atoms(one))
            elif isinstance(one, Atom):
                found.append(one.normal())
            else:
                found.extend(self.atoms(*one))
        return list(dict.fromkeys(atom for atom in found if not atom.trivial))

    def assume(self, *stated: Stated) -> None:
        """Take claims as hypotheses."""
        for atom in self.atoms(*stated):
            self.known.setdefault(atom, self.prover.recording.assume(atom))

    def by(self, goal: Stated, *facts: Stated, hints: Hints | None = None) -> list[Proved]:
        """Prove a claim from facts that are known, in one certificate an atom."""
        try:
            proved = self.prover.lemma(self.atoms(goal), self.atoms(*facts), hints=hints)
        except NotFoundError as error:
            raise DerivationError(f"cannot show {goal}: {error}") from error
        return [self.add(self.discharged(one)) for one in proved]

    def collect(self, goal: Stated, facts: Mapping[str, Stated], products: Iterable[str]) -> list[Proved]:
        """Prove a claim from named products of known facts, such as `"u u v"`; equations enter by themselves."""
        named = {label: self.atoms(fact) for label, fact in facts.items()}
        known = list(dict.fromkeys(atom for found in named.values() for atom in found))
        places = {label: known.index(found[0]) for label, found in named.items() if found}
        # A fact that is trivial here, such as 0 < 1, is a factor that may be left out.
        usable = tuple(tuple(places[label] for label in product.split() if named[label]) for product in products)
        return self.by(goal, known, hints=Hints(ladder=((1, 99, 0), (1, 99, 1), (1, 99, 2)), products=usable))

    def use(self, theorems: Proved | Sequence[Proved], **values: Value) -> list[Proved]:
        """Instantiate theorems, and discharge their hypotheses by what is known."""
        given = {name: self.poly(value) for name, value in values.items()}
        made = [theorems] if isinstance(theorems, Proved) else theorems
        return [self.add(self.discharged(self.prover.recording.instantiate(one, given))) for one in made]

    def add(self, proved: Proved) -> Proved:
        """Remember what was proved."""
        self.known.setdefault(proved.conclusion, proved)
        return proved

    def discharged(self, proved: Proved) -> Proved:
        """Cut every hypothesis that is known; all must be."""
        for atom in sorted(proved.theorem.hypotheses, key=str):
            fact = self.known_fact(atom)
            if fact.theorem.hypotheses != {atom}:
                proved = self.prover.recording.cut(fact, proved)
        return proved

    def known_fact(self, atom: Atom) -> Proved:
        """The theorem that concludes an atom, by weakening a strict one or an equation if need be."""
        if atom in self.known:
            return self.known[atom]
        if atom.relation is Relation.AT_LEAST:
            for relation in (Relation.ABOVE, Relation.EQUAL):
                stronger = Atom(atom.polynomial, relation).normal()
                if stronger in self.known:
                    step = self.prover.prove(atom, [stronger])
                    return self.add(self.prover.recording.cut(self.known[stronger], step))
            if len(atom.polynomial.terms) == 1 and self._is_product_of_known(atom):
                return self.known[atom]
        listing = "\n  ".join(str(known) for known in self.known)
        raise DerivationError(f"not known: {atom}\nknown are\n  {listing}")

    def _is_product_of_known(self, atom: Atom) -> bool:
        """Show that a monomial is nonnegative because each of its variables is."""
        ((monomial, value),) = atom.polynomial.terms
        odd = [Polynomial.variable(name) for name, exponent in monomial for _ in range(exponent)]
        if value < 0 or len(odd) < 2:  # noqa: PLR2004 - a product has two factors
            return False
        facts = []
        for factor in dict.fromkeys(odd):
            fact = next((a for r in (Relation.AT_LEAST, Relation.ABOVE) if (a := Atom(factor, r)) in self.known), None)
            if fact is None:
                return False
            facts.append(fact)
        places = tuple(facts.index(fact) for factor in odd for fact in facts if fact.polynomial == factor)
        step = self.prover.prove(atom, facts, Hints(ladder=((1, 1, 0),), products=(places,)))
        self.add(self.discharged(step))
        return True
