"""What the check says of a proof as it is stored, given a statement made from the source as it is now."""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from tests.proofs.test_check import part

from guarded_moments.proofs import Theorem, check
from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.replay import replay


@cache
def stored(*names: str) -> Mapping[str, tuple[Theorem, ...]]:
    """The theorems of these claims, replayed once a session."""
    return replay(json.dumps(part(*names)))


def problem_of(
    name: str, hypotheses: Collection[Atom], conclusion: Sequence[Atom], *, among: Sequence[str] = ()
) -> str | None:
    """None where the stored proof is one of this statement; `among` names claims that share what it rests on."""
    return check._problem(check._Claim(name, "", hypotheses, conclusion), stored(*(among or (name,)))[name])
