"""What was derived, compared with what is stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.derive.context import DerivationError
from guarded_moments.proofs.recording import Proved


class Stated(Protocol):
    """A statement: atoms that all hold wherever the hypotheses do."""

    @property
    def hypotheses(self) -> frozenset[Atom]:
        """What may be assumed."""
        ...

    @property
    def conclusion(self) -> tuple[Atom, ...]:
        """What is to be shown, in order."""
        ...


def compared(shown: Sequence[Proved], stated: Stated) -> list[Proved]:
    """What was shown, if it is what is stated.

    Raises:
        DerivationError: it needs a hypothesis that the statement does not have, or concludes something else.
    """
    for proved, goal in zip(shown, stated.conclusion, strict=True):
        surplus = proved.theorem.hypotheses - stated.hypotheses
        if surplus:
            raise DerivationError(f"not among the hypotheses: {sorted(map(str, surplus))}")
        if proved.conclusion != goal:
            raise DerivationError(f"concludes {proved.conclusion}, not {goal}")
    return list(shown)
