"""What an adapter is: one Adam step of another implementation, from a state to a state.

Claimed: an adapter calls the other package's public optimizer and changes nothing in it; it only lays the state in and
reads it out.  An optional package is imported when its adapter runs, never before.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from importlib import metadata
from typing import Any, NamedTuple

from torch import Tensor

from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters


class After(NamedTuple):
    """What a step left, and the moments that it really started from; float32, shape (n,)."""

    m_start: Tensor  #: as decoded from the implementation's own format; the state's own where that is float32
    v_start: Tensor
    p: Tensor  #: of a parameter that was zero: the update, bare
    m: Tensor  #: decoded
    v: Tensor


class Adapter(ABC):
    """One Adam step of another implementation."""

    name: str  #: on the command line
    title: str  #: in the table
    packages: tuple[str, ...]  #: distributions that it needs
    reading: str  #: how its operations are written, as read from its source
    block: int = 1  #: elements that share a scale, for quantised moments

    @property
    def quantised(self) -> bool:
        """Whether the moments are stored in fewer bits than float32 has."""
        return self.block > 1

    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed."""
        return tuple(package for package in self.packages if _version(package) is None)

    def versions(self) -> str:
        """The packages with their versions."""
        return ", ".join(f"{package} {_version(package)}" for package in self.packages)

    @abstractmethod
    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter.

        Args:
            state: a whole number of `block`s; not changed.
            hyperparameters: without weight decay.
        """

    def round_trip(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The moments encoded and decoded once, in the implementation's own format."""
        return m, v

    def observations(self) -> list[str]:
        """Facts about its arithmetic, seen apart from Adam."""
        return []


def imported(module: str) -> Any:  # noqa: ANN401 - a module of a package that need not be installed
    """A module of an optional package."""
    return importlib.import_module(module)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
