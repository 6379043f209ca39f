"""What a requirement is, what a check may answer, and what it is given.

A check returns when the backend conforms on every input that it tried, and raises otherwise.  It never passes for want
of an answer: what could not be decided or could not be tried on this machine is said by an exception of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import torch

from guarded_moments.oracle.conformance.adapting import Adapted
from guarded_moments.oracle.conformance.findings import NotJudged, Undecided
from guarded_moments.oracle.conformance.scenes import SCENES, Scene
from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.platform import one_torch_thread, require_subnormals


class Level(Enum):
    """What a backend may claim once it meets all requirements of the level."""

    SOUND = "sound"  #: the guard, the exact fallback and the first update hold
    REPRODUCIBLE = "reproducible"  #: codes and decoded values are the reference's


@dataclass(frozen=True)
class Trial:
    """What a check is given."""

    backend: Adapted
    seed: int | str = 1
    op_models: tuple[str, ...] = ()  #: names of implementations to judge by; by default a choice of them all

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The claims to judge guards and updates under: of the op models asked for that the backend claims.

        Raises:
            NotJudged: it claims none of those asked for.
        """
        claimed = self.backend.op_models
        names = self.op_models or claimed or ()
        if claimed is not None and self.op_models:
            names = tuple(name for name in self.op_models if name in claimed)
            if not names:
                raise NotJudged(f"the backend claims none of the op models asked for: it claims {', '.join(claimed)}")
        if not names:
            return SCENES
        count = max(len(SCENES), len(names))
        return tuple(replace(SCENES[i % len(SCENES)], op_model=names[i % len(names)]) for i in range(count))

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
    needs: tuple[str, ...]  #: operations of a backend that it calls

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
