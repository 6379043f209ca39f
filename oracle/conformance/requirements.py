"""What a requirement is, what a check may answer, and what it is given.

A check returns when the backend conforms on every input that it tried, and raises otherwise.  It never passes for want
of an answer: what could not be decided or could not be tried on this machine is said by an exception of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch

from guarded_moments.oracle.conformance.backend import Backend
from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.platform import one_torch_thread, require_subnormals


class Level(Enum):
    """What a backend may claim once it meets all requirements of the level."""

    SOUND = "sound"  #: the guard, the exact fallback and the first update hold
    REPRODUCIBLE = "reproducible"  #: codes and decoded values are the reference's


class NonConformance(Exception):  # noqa: N818 - a finding about a backend, not an error of the program
    """A requirement that a backend does not meet, with the smallest counterexample found."""

    def __init__(self, headline: str, *details: str) -> None:
        """Say what is wrong.

        Args:
            headline: one short line.
            details: more lines: the counterexample and its traces.
        """
        super().__init__(headline, *details)

    def __str__(self) -> str:
        return "\n".join(self.args)


class Undecided(Exception):  # noqa: N818 - neither a finding nor an error
    """There is no answer, so that the requirement is neither met nor missed; this counts as a failure."""


class NotJudged(Exception):  # noqa: N818 - neither a finding nor an error
    """This machine cannot try the requirement; the text says why."""


@dataclass(frozen=True)
class Trial:
    """What a check is given."""

    backend: Backend
    seed: int

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers that depend on the seed and the purpose alone, not on which checks ran before."""
        digest = hashlib.blake2b(f"{self.seed} {purpose}".encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


@dataclass(frozen=True)
class Requirement:
    """One numbered sentence about backends, and how it is checked."""

    identifier: str  #: `DEC-1`: chapter and number; never given to another requirement
    text: str  #: what must hold
    why: str  #: what breaks otherwise
    level: Level
    check: Callable[[Trial], None]  #: raises `NonConformance`, `Undecided` or `NotJudged`, or returns

    def judge(self, trial: Trial) -> None:
        """Run the check.

        Raises:
            NonConformance: the backend does not meet the requirement.
            Undecided: the budget ran out, or this process flushes subnormals.
            NotJudged: this machine cannot try it.
        """
        try:
            require_subnormals()
        except PlatformError as error:
            raise Undecided(str(error)) from None
        with one_torch_thread():
            self.check(trial)

    @property
    def chapter(self) -> str:
        """The letters of the identifier."""
        return self.identifier.partition("-")[0]
