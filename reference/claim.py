"""The claim that a file makes, as values that can be printed as a sentence.

A claim states what is guaranteed about the first update after recovery and names the op model it is about; what it
does not cover is listed with it, so that no report can quote one without the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError


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


class Horizon(Enum):
    """How many updates after recovery a claim covers."""

    FIRST = "1"

    @classmethod
    def parse(cls, text: str) -> Horizon:
        """Read `1`.

        Raises:
            UnsupportedError: a longer horizon, which this version does not guarantee.
        """
        if text.strip() == cls.FIRST.value:
            return cls.FIRST
        msg = f"horizon {text!r} is not supported yet: only the first update after recovery is guaranteed (horizon 1)"
        raise UnsupportedError(msg)


@dataclass(frozen=True)
class Claim:
    """The first update after recovery stays within `tolerance` of native Adam's for every `|g| <= gradient_bound`."""

    tolerance: Tolerance
    gradient_bound: GradientBound
    implementation: str  #: the op model's name, `torch-2.13-cpu-avx2/single`
    horizon: Horizon = Horizon.FIRST

    def sentence(self) -> str:
        """The claim in words, for reports."""
        gradients = (
            "every finite gradient below the op model's overflow limit"
            if math.isinf(self.gradient_bound.value)
            else f"every gradient |g| <= {self.gradient_bound.value:g}"
        )
        return f"first update within {self.tolerance.value:g} lr of native, for {gradients}, {self.implementation}"

    def not_claimed(self) -> str:
        """What the claim leaves out."""
        beyond = "" if math.isinf(self.gradient_bound.value) else f"gradients above {self.gradient_bound.value:g}, "
        return f"later updates, {beyond}other op models, flush-to-zero, the parameter's own rounding"
