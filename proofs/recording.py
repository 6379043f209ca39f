"""Writes proofs: every application of a kernel rule is carried out and recorded, and what is used goes into a file.

Claimed: nothing; the file is replayed by those who want to believe it (`proofs.replay`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from guarded_moments.proofs import kernel
from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.kernel import Refutation, Theorem
from guarded_moments.proofs.polynomials import Polynomial

_NAMED_STEPS = {
    "instantiate": (1,),
    "cut": (1, 2),
    "cases": (1, 2),
    "eliminate_root": (1, 4),
    "eliminate_reciprocal": (1, 4),
}


class Proved(NamedTuple):
    """A theorem and the step of the recording that made it."""

    theorem: Theorem
    step: int

    @property
    def conclusion(self) -> Atom:
        """What the theorem concludes."""
        return self.theorem.conclusion


class Recording:
    """The kernel's rules, recorded.  The same step twice is recorded once."""

    def __init__(self) -> None:
        self._steps: list[list[Any]] = []
        self._made: dict[Any, Proved] = {}
        self._names: dict[str, list[int]] = {}

    def assume(self, atom: Atom) -> Proved:
        """See `kernel.assume`."""
        return self._record(["assume", atom.normal()], lambda: kernel.assume(atom))

    def certify(self, hypotheses: Sequence[Atom], goal: Atom, refutations: Sequence[Refutation]) -> Proved:
        """See `kernel.certify`."""
        step = ["certify", tuple(hypotheses), goal, tuple(refutations)]
        return self._record(step, lambda: kernel.certify(hypotheses, goal, refutations))

    def instantiate(self, of: Proved, values: Mapping[str, Polynomial]) -> Proved:
        """See `kernel.instantiate`; variables that do not occur are left out."""
        used = {name: value for name, value in values.items() if name in of.theorem.variables}
        if not used:
            return of
        step = ["instantiate", of.step, tuple(sorted(used.items()))]
        return self._record(step, lambda: kernel.instantiate(of.theorem, used))

    def cut(self, first: Proved, second: Proved) -> Proved:
        """See `kernel.cut`."""
        return self._record(["cut", first.step, second.step], lambda: kernel.cut(first.theorem, second.theorem))

    def cases(self, first: Proved, second: Proved, polynomial: Polynomial) -> Proved:
        """See `kernel.cases`."""
        step = ["cases", first.step, second.step, polynomial]
        return self._record(step, lambda: kernel.cases(first.theorem, second.theorem, polynomial))

    def eliminate_root(self, of: Proved, name: str, radicand: Polynomial, exists: Proved) -> Proved:
        """See `kernel.eliminate_root`."""
        step = ["eliminate_root", of.step, name, radicand, exists.step]
        return self._record(step, lambda: kernel.eliminate_root(of.theorem, name, radicand, exists.theorem))

    def eliminate_reciprocal(self, of: Proved, name: str, divisor: Polynomial, exists: Proved) -> Proved:
        """See `kernel.eliminate_reciprocal`."""
        step = ["eliminate_reciprocal", of.step, name, divisor, exists.step]
        return self._record(step, lambda: kernel.eliminate_reciprocal(of.theorem, name, divisor, exists.theorem))

    def name(self, name: str, proved: Iterable[Proved]) -> None:
        """Give a name to a claim: it and all it rests on goes into the file."""
        self._names[name] = [one.step for one in proved]

    def _record(self, step: list[Any], make: Any) -> Proved:  # noqa: ANN401 - a rule applied to its arguments
        key = tuple(step)
        if key not in self._made:
            self._made[key] = Proved(make(), len(self._steps))
            self._steps.append(step)
        return self._made[key]

    def text(self) -> str:
        """The proof file: named theorems and what they rest on, nothing else."""
        needed = {step for steps in self._names.values() for step in steps}
        for index in range(len(self._steps) - 1, -1, -1):
            if index in needed:
                rule = self._steps[index]
                needed.update(rule[place] for place in _NAMED_STEPS.get(rule[0], ()))
        position = {old: new for new, old in enumerate(sorted(needed))}
        writer = _Writer(position)
        steps = [writer.step(self._steps[old]) for old in sorted(needed)]
        names = {name: [position[step] for step in steps] for name, steps in sorted(self._names.items())}
        parts = {"polynomials": writer.polynomials, "steps": steps}
        body = ",\n".join(
            f'"{part}": [\n' + ",\n".join(json.dumps(item, separators=(",", ":")) for item in items) + "\n]"
            for part, items in parts.items()
        )
        return "{" + body + ',\n"theorems": ' + json.dumps(names, indent=0) + "}\n"


class _Writer:
    """Numbers polynomials as they come."""

    def __init__(self, position: Mapping[int, int]) -> None:
        self._position = position
        self._known: dict[Polynomial, int] = {}
        self.polynomials: list[list[list[Any]]] = []

    def step(self, step: Sequence[Any]) -> list[Any]:
        match step:
            case ["assume", atom]:
                return ["assume", self._atom(atom)]
            case ["certify", hypotheses, goal, refutations]:
                facts = [self._atom(atom) for atom in hypotheses]
                return ["certify", facts, self._atom(goal), [self._refutation(one) for one in refutations]]
            case ["instantiate", of, values]:
                return ["instantiate", self._position[of], {name: self._number(value) for name, value in values}]
            case ["cut", first, second]:
                return ["cut", self._position[first], self._position[second]]
            case ["cases", first, second, polynomial]:
                return ["cases", self._position[first], self._position[second], self._number(polynomial)]
            case [rule, of, name, polynomial, exists]:
                return [rule, self._position[of], name, self._number(polynomial), self._position[exists]]
        raise AssertionError(step)

    def _number(self, polynomial: Polynomial) -> int:
        if polynomial not in self._known:
            self._known[polynomial] = len(self.polynomials)
            terms = [
                [str(value), *(part for pair in monomial for part in pair)] for monomial, value in polynomial.terms
            ]
            self.polynomials.append(terms)
        return self._known[polynomial]

    def _atom(self, atom: Atom) -> list[Any]:
        return [atom.relation.value, self._number(atom.polynomial)]

    def _refutation(self, refutation: Refutation) -> list[Any]:
        products = [
            [str(f), list(facts), [self._number(p) for p in squares]] for f, facts, squares in refutation.products
        ]
        return [products, [[fact, self._number(multiplier)] for fact, multiplier in refutation.multiples]]
