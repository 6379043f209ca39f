"""What a step of another implementation left, beside every op model: bits, units in the last place, learning rates.

The op models start from the moments that the implementation really started from.  Where moments are stored quantised,
the op models' new moments go through the same encoding before they are compared, so that what differs is arithmetic.

Claimed: the counts.  Two NaN are equal, zeros of different sign are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import Adapter, After
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, implementation_for
from guarded_moments.reference.whole_tensor import WholeTensor

_SMALLEST_NORMAL = 2.0**-126
_SIGN_CLEARED = 0x7FFFFFFF


class Outcome(NamedTuple):
    """What one update gives: float32, shape (n,)."""

    m: Tensor
    v: Tensor
    update: Tensor


@dataclass(frozen=True)
class Distance:
    """How far one quantity is from an op model's, over some states."""

    implementation: str
    compared: int
    deviating: int  #: in bits
    median_ulps: float  #: of the deviating ones that are finite on both sides; 0 for none
    largest_ulps: int  #: of the same
    unlike: int  #: finite, infinite or NaN on one side only

    @property
    def share(self) -> float:
        """Of the deviating ones."""
        return self.deviating / self.compared if self.compared else 0.0


@dataclass(frozen=True)
class Quantity:
    """One quantity beside all op models."""

    name: str
    followed: tuple[str, ...]  #: implementations of the same bits everywhere, this machine's first
    nearest: Distance  #: of the implementation with the fewest deviating elements; the first of those followed
    subnormal: int  #: results that are subnormal in this machine's single path
    flushed: int  #: of those, the ones that are zero here


@dataclass(frozen=True)
class Comparison:
    """All quantities over one kind of states."""

    quantities: tuple[Quantity, ...]

    @property
    def followed(self) -> tuple[str, ...]:
        """The implementations that give the same bits in every quantity."""
        first, *others = (quantity.followed for quantity in self.quantities)
        return tuple(name for name in first if all(name in names for names in others))


@dataclass(frozen=True)
class Effect:
    """Absolute differences of updates, in learning rates, over the coordinates of one state."""

    percentile: float  #: 99.9 % of the coordinates differ by at most this
    largest: float


def native_implementation() -> Implementation:
    """The path that torch takes on this machine if nothing is asked for: `single`."""
    return implementation_for({})


def predicted(implementation: Implementation, state: State, hyperparameters: Hyperparameters) -> Outcome:
    """What an implementation's op models give for a zero parameter."""
    scalars = implementation.scalars(hyperparameters, float(state.number))
    whole = WholeTensor(implementation, hyperparameters.options, scalars)
    result = whole(torch.zeros_like(state.g), state.g, state.m, state.v)
    return Outcome(result.m, result.v, result.p)


def compare(
    adapter: Adapter, states: Sequence[State], afters: Sequence[After], hyperparameters: Hyperparameters
) -> Comparison:
    """Hold what a step left against every op model.

    Args:
        adapter: whose encoding the moments go through.
        states: what the steps were given.
        afters: what they left, in the same order.
        hyperparameters: without weight decay.
    """
    starts = [started(state, after) for state, after in zip(states, afters, strict=True)]
    seen = [Outcome(after.m, after.v, after.p) for after in afters]
    native = native_implementation()
    names = sorted(IMPLEMENTATIONS, key=lambda name: name.split("/")[0] != native.name.split("/")[0])
    outcomes: dict[str, list[Outcome]] = {}
    for name in names:
        expected = [predicted(IMPLEMENTATIONS[name], start, hyperparameters) for start in starts]
        if adapter.quantised:
            expected = [Outcome(*adapter.round_trip(m, v), update) for m, v, update in expected]
        outcomes[name] = expected
    quantities = []
    for i, quantity in enumerate(Outcome._fields):
        ours = torch.cat([outcome[i] for outcome in seen])
        theirs = {name: torch.cat([outcome[i] for outcome in outcomes[name]]) for name in names}
        distances = [distance(name, ours, theirs[name]) for name in names]
        subnormal = (theirs[native.name] != 0) & (theirs[native.name].abs() < _SMALLEST_NORMAL)
        quantities.append(
            Quantity(
                name=quantity,
                followed=tuple(found.implementation for found in distances if found.deviating == 0),
                nearest=min(distances, key=lambda found: found.deviating),
                subnormal=int(subnormal.sum()),
                flushed=int((subnormal & (ours == 0)).sum()),
            )
        )
    return Comparison(tuple(quantities))


def started(state: State, after: After) -> State:
    """The state that the step really started from."""
    return State(state.number, state.g, after.m_start, after.v_start)


def distance(name: str, seen: Tensor, expected: Tensor) -> Distance:
    """How far float32 values are from those of the implementation of that name."""
    differ = (seen.view(torch.int32) != expected.view(torch.int32)) & ~(seen.isnan() & expected.isnan())
    finite = seen.isfinite() & expected.isfinite()
    ulps = (_places(seen) - _places(expected)).abs()[differ & finite]
    return Distance(
        implementation=name,
        compared=seen.numel(),
        deviating=int(differ.sum()),
        median_ulps=float(ulps.double().median()) if len(ulps) else 0.0,
        largest_ulps=int(ulps.max()) if len(ulps) else 0,
        unlike=int((differ & ~finite).sum()),
    )


def effect(seen: Tensor, expected: Tensor, lr: float) -> Effect:
    """How far updates are apart, in learning rates; infinite where one is not finite and they differ."""
    apart = (seen.double() - expected.double()).abs() / lr
    unlike = ~(seen.isfinite() & expected.isfinite()) & ~((seen == expected) | (seen.isnan() & expected.isnan()))
    apart = torch.where(unlike, torch.inf, apart.nan_to_num(0.0))
    return Effect(percentile(apart, 0.999), float(apart.max()))


def percentile(values: Tensor, share: float) -> float:
    """The smallest of the values that is at least as large as this share of them."""
    return float(values.sort().values[max(0, math.ceil(share * len(values)) - 1)])


def _places(values: Tensor) -> Tensor:
    """The place of each float32 in their order, int64: neighbours differ by one, both zeros are 0."""
    bits = values.view(torch.int32).long()
    return torch.where(bits < 0, -(bits & _SIGN_CLEARED), bits)
