"""What another implementation's quantised moments do to the first update, when nothing guards them.

The moments are encoded and decoded once by the implementation's own code; the native and the recovered update then
follow one op model, torch's single path on this machine.  The deviation is looked at for the gradient of the state, and
for a fixed set of gradients scaled to each coordinate.

Claimed: each deviation is attained, bit for bit, by a binary32 gradient.  Not claimed: that no gradient does worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import Adapter
from guarded_moments.oracle.crosscheck.compare import native_implementation, percentile
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.hyperparameters import Hyperparameters

#: In learning rates; coordinates beyond it are counted.
TOLERANCE = 0.01
_PER_OCTAVE, _OCTAVES = 4, 16
#: Multiples of a coordinate's own scale, besides zero; each with both signs.
FACTORS = tuple(2.0 ** (k / _PER_OCTAVE) for k in range(-_OCTAVES * _PER_OCTAVE, _OCTAVES * _PER_OCTAVE + 1))
PROBES = 2 * len(FACTORS) + 1


@dataclass(frozen=True)
class Deviations:
    """Over the coordinates of a state, in learning rates."""

    beyond: float  #: share of coordinates that deviate by more than `TOLERANCE`
    median: float
    percentile: float  #: 99.9 %
    largest: float

    @classmethod
    def of(cls, deviation: Tensor) -> Deviations:
        """Of one deviation for each coordinate."""
        return cls(
            beyond=float((deviation > TOLERANCE).double().mean()),
            median=percentile(deviation, 0.5),
            percentile=percentile(deviation, 0.999),
            largest=float(deviation.max()),
        )


@dataclass(frozen=True)
class CodecDeviation:
    """What one round trip of a state does."""

    number: int  #: of the update
    own: Deviations  #: for the gradient of the state
    probed: Deviations  #: for the worst of the probing gradients and the state's own
    m: float  #: the coordinate that deviates most, and the gradient at which it does
    v: float
    m_hat: float
    v_hat: float
    g: float


def codec_deviation(adapter: Adapter, state: State, hyperparameters: Hyperparameters) -> CodecDeviation:
    """Send a state's moments through an implementation's format, and follow the next update from both."""
    native = native_implementation()
    scalars = native.scalars(hyperparameters, float(state.number))
    trajectories = Trajectories(native.body, hyperparameters.options, scalars)
    states = States(state.m, state.v, *adapter.round_trip(state.m, state.v))
    own = trajectories.deviations(states, state.g) / hyperparameters.lr
    worst, at = own.clone(), state.g.clone()
    scale = _scale(state)
    for factor in (0.0, *FACTORS, *(-factor for factor in FACTORS)):
        g = scale * factor
        deviation = trajectories.deviations(states, g) / hyperparameters.lr
        worse = deviation > worst
        worst, at = torch.where(worse, deviation, worst), torch.where(worse, g, at)
    i = int(worst.argmax())
    return CodecDeviation(
        number=state.number,
        own=Deviations.of(own),
        probed=Deviations.of(worst),
        m=float(states.m[i]),
        v=float(states.v[i]),
        m_hat=float(states.m_hat[i]),
        v_hat=float(states.v_hat[i]),
        g=float(at[i]),
    )


def _scale(state: State) -> Tensor:
    """The size of gradients that a coordinate has seen; the middle one of all where it has seen none."""
    scale = torch.maximum(state.v.sqrt(), state.m.abs())
    seen = scale[scale > 0]
    return torch.where(scale > 0, scale, seen.median() if len(seen) else torch.tensor(1.0))
