"""The claim that a file makes, as values that can be printed as a sentence.

A claim states what is guaranteed about the updates after recovery, the first or more, and names the op model it is
about; what it does not cover is listed with it, so that no report can quote one without the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from guarded_moments.reference.errors import InvalidClaimError

#: Updates of a horizon in binary32: by then the slack of rounding is a tenth of a tolerance of 0.01.
LONGEST_HORIZON = 1000
#: Of a claim about several updates in binary32, whatever `G`: far above any gradient, and far below overflow.
LARGEST_GRADIENT = 2.0**45
_MOST_DIGITS = 9


@dataclass(frozen=True)
class Tolerance:
    """`tau`: the largest deviation allowed, in learning rates.  Positive and finite."""

    value: float

    def __post_init__(self) -> None:
        """Reject what makes no claim."""
        if not (math.isfinite(self.value) and self.value > 0):
            msg = f"tolerance is {self.value!r}: expected a positive, finite number of learning rates, such as 0.01"
            raise InvalidClaimError(msg)


@dataclass(frozen=True)
class GradientBound:
    """`G`: the claim holds for every binary32 gradient of at most this magnitude.  Positive, may be infinite.

    Infinity means every gradient up to the op model's overflow limit, above which `v` itself overflows.
    """

    value: float

    def __post_init__(self) -> None:
        """Reject what makes no claim."""
        if not self.value > 0:
            msg = f"grad-bound is {self.value!r}: expected a positive number, or inf"
            raise InvalidClaimError(msg)


@dataclass(frozen=True)
class Horizon:
    """How many updates after recovery a claim covers, under one sequence of gradients that both runs share.

    A number: so many updates in binary32, as the op model computes them.  None: every update, in exact arithmetic, and
    the first one in binary32 as well.
    """

    updates: int | None

    FIRST: ClassVar[Horizon]
    ALL: ClassVar[Horizon]

    def __post_init__(self) -> None:
        """Reject what makes no claim, or one that the slack of rounding would swallow."""
        if self.updates is not None and not 1 <= self.updates <= LONGEST_HORIZON:
            msg = f"horizon is {self.updates}: expected a number of updates from 1 to {LONGEST_HORIZON}, or all"
            raise InvalidClaimError(msg)

    @classmethod
    def parse(cls, text: str) -> Horizon:
        """Read a number of updates, or `all`.

        Raises:
            InvalidClaimError: it is neither, or out of range.
        """
        stripped = text.strip()
        if stripped == str(cls.ALL):
            return cls.ALL
        if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= _MOST_DIGITS):
            msg = f"horizon is {text!r}: expected a number of updates from 1 to {LONGEST_HORIZON}, or all"
            raise InvalidClaimError(msg)
        return cls(int(stripped))

    def __str__(self) -> str:
        """As files and command lines have it."""
        return "all" if self.updates is None else str(self.updates)

    @property
    def in_words(self) -> str:
        """Which updates the claim is about, and in which arithmetic."""
        if self.updates is None:
            return "first update, and in exact arithmetic every later one,"
        return "first update" if self == Horizon.FIRST else f"each of the first {self.updates} updates"

    @property
    def condition(self) -> str:
        """What a claim about more than the first update assumes of the gradients."""
        return "" if self == Horizon.FIRST else " of one sequence that both runs share"


Horizon.FIRST = Horizon(1)
Horizon.ALL = Horizon(None)


@dataclass(frozen=True)
class Claim:
    """The updates of the horizon stay within `tolerance` of native Adam's for every `|g| <= gradient_bound`."""

    tolerance: Tolerance
    gradient_bound: GradientBound
    implementation: str  #: the op model's name, `torch-2.13-cpu-avx2/single`
    horizon: Horizon = Horizon.FIRST

    def sentence(self) -> str:
        """The claim in words, for reports."""
        gradients = f"every gradient |g| <= {self.largest_of_sequence:g}"
        if math.isinf(self.largest_of_sequence):
            gradients = "every finite gradient below the op model's overflow limit"
        updates, within = self.horizon.in_words, f"within {self.tolerance.value:g} lr of native"
        return f"{updates} {within}, for {gradients}{self.horizon.condition}, {self.implementation}"

    @property
    def largest_of_sequence(self) -> float:
        """`G`; of several updates in binary32 at most `LARGEST_GRADIENT`, so that `v` cannot overflow over them."""
        several = self.horizon not in {Horizon.FIRST, Horizon.ALL}
        return min(self.gradient_bound.value, LARGEST_GRADIENT) if several else self.gradient_bound.value

    def not_claimed(self) -> str:
        """What the claim leaves out."""
        beyond = "" if math.isinf(self.largest_of_sequence) else f"gradients above {self.largest_of_sequence:g}, "
        return f"{self._updates_left_out}, {beyond}other op models, flush-to-zero, the parameter's own rounding"

    @property
    def _updates_left_out(self) -> str:
        apart = "runs whose own gradients differ from the second update on"
        if self.horizon == Horizon.ALL:
            return f"{apart}, the rounding of later updates"
        return "later updates" if self.horizon == Horizon.FIRST else f"updates after {self.horizon}, {apart}"
