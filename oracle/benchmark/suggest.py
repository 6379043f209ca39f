"""What each tolerance and gradient bound would cost a checkpoint: its bit rate, from evenly spaced coordinates.

Claimed: with all coordinates taken the bits are those of the file that `compress` would write, but for the file's own
framing; with fewer they are an estimate, in which every tensor has its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Tensor

from guarded_moments.reference.checkpoint import compress, parameters_of
from guarded_moments.reference.checkpoint.bit_rate import bit_rate
from guarded_moments.reference.checkpoint.layouts import entry_at, with_own_states
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, Parameter, in_memory_order

TOLERANCES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
GRAD_BOUNDS = (0.01, 1.0, float("inf"))
COORDINATES = 1 << 18


@dataclass(frozen=True)
class Choice:
    """One pair, and what it costs."""

    tolerance: float
    grad_bound: float
    bits: float  #: stored for each coordinate of the checkpoint, all overhead in
    escaped: float  #: share of the coordinates looked at that are stored exactly


class Suggestion:
    """A checkpoint to choose for.

    Args:
        checkpoint: a state of Adam or AdamW, or one with such states in it.
        most: coordinates to look at, at about so many.
    """

    def __init__(self, checkpoint: Mapping[str, Any], most: int = COORDINATES) -> None:
        parameters = parameters_of(checkpoint)
        guarded = [parameter for parameter in parameters if parameter.kept_because is None]
        kept = sum(parameter.numel for parameter in parameters if parameter.kept_because is not None)
        self._guarded = sum(parameter.numel for parameter in guarded)
        self.coordinates = self._guarded + kept  #: of the checkpoint
        self._thinned = _thinned(checkpoint, guarded, -(-self._guarded // most) or 1)
        self.looked_at = sum(parameter.numel for parameter in parameters_of(self._thinned)) - kept

    def choices(self, tolerances: Sequence[float], grad_bounds: Sequence[float], **more: Any) -> Iterator[Choice]:  # noqa: ANN401 - of `compress`
        """Compress at each pair, tolerances first.

        Args:
            tolerances: `tau`, in learning rates.
            grad_bounds: `G`.
            more: arguments of `compress` for what does not change.
        """
        for tolerance, grad_bound in product(tolerances, grad_bounds):
            state = compress(self._thinned, tolerance=tolerance, grad_bound=grad_bound, **more)
            rate = bit_rate(state)
            growing = (rate.codes + rate.escapes + rate.parameters) * self._guarded / max(1, self.looked_at)
            bits = (growing + rate.metadata) * state.coordinates / max(1, self.coordinates)
            yield Choice(tolerance, grad_bound, bits, state.escapes / max(1, self.looked_at))


def _thinned(checkpoint: Mapping[str, Any], guarded: Sequence[Parameter], every: int) -> Any:  # noqa: ANN401 - as `altered`
    """The checkpoint with every so-manieth coordinate of each guarded tensor, in memory order."""
    thinned = with_own_states(checkpoint)
    for parameter in guarded if every > 1 else ():
        moments = (_spaced(parameter.m, every), _spaced(parameter.v, every))
        entry_at(thinned, parameter.place, parameter.key).update(zip(MOMENTS, moments, strict=True))
    return thinned


def _spaced(moment: Tensor, every: int) -> Tensor:
    return in_memory_order(moment)[::every].clone()


def least_tolerance(choices: Sequence[Choice], share: float) -> float | None:
    """The smallest tolerance at which, whatever the bound, no more than a share is stored exactly."""
    good = {choice.tolerance for choice in choices} - {c.tolerance for c in choices if c.escaped > share}
    return min(good, default=None)
