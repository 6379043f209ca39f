"""A lemma: one claim of real arithmetic, with everything needed to check that it says something.

Claimed: a `Lemma` that exists is well formed.  Its texts are in the claim language, mention declared
variables only, and use all of them.  Whether it is *true* is for `guarded_moments.proofs.solvers` to find.

Conventions of all lemmas.  Variables are real numbers.  A square root enters as a variable ``s`` with
``s >= 0`` and ``s*s == y``; a quotient ``p/d`` as a variable ``q`` with ``q*d == p``; a magnitude as a
bound on ``abs``.  The meaning of each variable ends with its unit in brackets: ``[g]`` that of a
gradient (also of ``m``, ``sqrt(v)`` and ``eps``), ``[g^2]``, ``[1/g]``, ``[x]`` where a lemma holds
for a quantity of any one unit, ``[lr]`` that of the parameter, ``[1]`` for a pure number.
"""

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

from guarded_moments.proofs.claims import Claim, ClaimError, parse_claim

#: Several times what the hardest lemma needs, so that it is a limit and not a measurement.
RESOURCE_LIMIT: Final = 4_000_000

#: Words of SMT-LIB, or of the claim language, that a variable would collide with.
_RESERVED: Final = frozenset(
    {
        "abs",
        "distinct",
        "div",
        "exists",
        "false",
        "forall",
        "ite",
        "let",
        "match",
        "mod",
        "par",
        "true",
        "xor",
    }
)

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MEANING: Final = re.compile(r"\S(.*\S)? \[[^\]]+\]")


class LemmaError(ValueError):
    """A lemma is not well formed; the message names the lemma and the part."""


@dataclass(frozen=True)
class Lemma:
    """A claim, its hypotheses, and its failing twin.

    Attributes:
        name: what the lemma is called, in words joined by underscores.
        statement: the claim in one English sentence.
        variables: the real variables, each with its meaning and unit.
        given: the hypotheses, in the claim language.
        then: the goal, in the claim language.
        twin: the goal made slightly false: the hypotheses must not imply it.
        needed_by: the lemmas and results that use this one.
        resource_limit: the solver steps that one query may take (z3's ``rlimit``).  Steps are the
            same on every machine; seconds are not.
    """

    name: str
    statement: str
    variables: Mapping[str, str] = field(hash=False)
    given: tuple[str, ...]
    then: str
    twin: str
    needed_by: tuple[str, ...]
    resource_limit: int = RESOURCE_LIMIT

    def __post_init__(self) -> None:
        """Check that the lemma is well formed.

        Raises:
            LemmaError: if it is not.
        """
        object.__setattr__(self, "variables", MappingProxyType(dict(self.variables)))
        if not _NAME.fullmatch(self.name):
            self._refuse("name", "words of lower-case letters and digits, joined by underscores")
        if not self.statement.strip().endswith("."):
            self._refuse("statement", "a sentence that ends with a full stop")
        # A forgotten comma makes one text of a tuple of texts, and claims of its letters.
        for part in ("given", "needed_by"):
            if not isinstance(getattr(self, part), tuple):
                self._refuse(part, "a tuple of texts")
        if not self.needed_by:
            self._refuse("needed_by", "a lemma that nothing needs does not belong here")
        if self.resource_limit <= 0:
            self._refuse("resource_limit", "a positive number of solver steps")
        self._check_variables()
        # Reading the hypotheses is the check of them; the goals are read to compare them.
        _ = self.hypotheses
        if self.false_goal == self.goal:
            self._refuse("twin", "it says the same as the goal")

    def _check_variables(self) -> None:
        """Check that every variable can be one, has a meaning with a unit, and occurs."""
        # By text, not by polynomial: in an identity the variables cancel.
        occurring = set(_WORD.findall(" ".join((*self.given, self.then))))
        for name, meaning in self.variables.items():
            if not _WORD.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
                self._refuse("variables", f"{name!r} cannot be a variable")
            if not _MEANING.fullmatch(meaning):
                self._refuse("variables", f"{name!r} needs a meaning that ends with a [unit]")
            if name not in occurring:
                self._refuse("variables", f"{name!r} is never used")

    @cached_property
    def hypotheses(self) -> Claim:
        """The atoms of all hypotheses."""
        return tuple(atom for number, text in enumerate(self.given) for atom in self._parsed(f"given[{number}]", text))

    @cached_property
    def goal(self) -> Claim:
        """The atoms of the goal."""
        return self._parsed("then", self.then)

    @cached_property
    def false_goal(self) -> Claim:
        """The atoms of the failing twin."""
        return self._parsed("twin", self.twin)

    def _parsed(self, part: str, text: str) -> Claim:
        """The atoms of one text, or an error that names the part of the lemma."""
        try:
            return parse_claim(text, self.variables)
        except ClaimError as error:
            raise LemmaError(f"lemma {self.name!r}, {part}: {error}") from error

    def _refuse(self, part: str, reason: str) -> None:
        """Raise an error about one part of the lemma."""
        raise LemmaError(f"lemma {self.name!r}, {part}: {reason}")
