"""Seeded bugs: each a backend with one slip of the kind that people make, and the requirement that must catch it."""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from guarded_moments.oracle.conformance import ReferenceBackend
from guarded_moments.reference.checkpoint.optimizer_state import StateDict

#: The requirement that must catch each; modules of bugs fill it when they are imported.
KILLERS: dict[type[ReferenceBackend], str] = {}

T = TypeVar("T", bound=type[ReferenceBackend])


def caught_by(identifier: str) -> Callable[[T], T]:
    """Enter a backend among the seeded bugs."""

    def enter(backend: T) -> T:
        KILLERS[backend] = identifier
        return backend

    return enter


class AfterRecovery(ReferenceBackend):
    """What comes back is changed, parameter by parameter."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """What becomes of the moments of one parameter."""
        raise NotImplementedError

    def recover(self, content: bytes) -> StateDict:
        """The reference's, changed."""
        state = super().recover(content)
        for entry in state["state"].values():
            entry["exp_avg"], entry["exp_avg_sq"] = self.change(entry["exp_avg"], entry["exp_avg_sq"])
        return state
