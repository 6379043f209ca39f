"""What an audit says about later updates, whether they are claimed or not; in words, for all readers alike.

Claimed: what `reference.horizon` claims of the bounds, in exact arithmetic and under one sequence of gradients that
both runs share; each sentence says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from guarded_moments.reference.claim import Horizon

#: The condition without which nothing here means anything, and what it leaves out.
SHARED = "if both runs see one sequence of gradients; runs that compute their own see others from the second update on"


@dataclass(frozen=True)
class Afterwards:
    """Bounds over all guarded coordinates of a checkpoint, in learning rates."""

    horizon: str  #: of the claim: a number of updates, or `all`
    largest: float | None  #: no later update deviates by more, in exact arithmetic; None: no bound for all updates
    total: float | None  #: nor do the first updates in sum
    updates: int  #: so many
    factor: float | None  #: times what the guard of the first update lets pass at most; None where it says nothing
    implied: float | None  #: that, in learning rates

    def sentences(self) -> list[str]:
        """Two or three: what is bounded, and under which condition."""
        if self.largest is None or self.total is None:
            return ["no bound for all later updates: beta1**2 is not below beta2"]
        largest = min(self.largest, self.largest if self.implied is None else self.implied)
        total = min(self.total, self.updates * largest)
        most = f"in exact arithmetic no later update deviates by more than {largest:.6g} lr"
        found = [f"{most}, and the first {self.updates:,} in sum by no more than {total:.6g} lr"]
        if self.factor is not None:
            found.append(
                f"any guard of the first update for every gradient keeps later ones within {self.factor:.4g} times its "
                f"own bound, here {self.implied:.6g} lr"
            )
        return [*found, SHARED]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "horizon": self.horizon,
            "largest": self.largest,
            "sum": self.total,
            "updates": self.updates,
            "factor": self.factor,
            "implied": self.implied,
            "condition": SHARED,
            "claimed": self.horizon != str(Horizon.FIRST),
        }
