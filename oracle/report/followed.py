"""One guarded coordinate with all that its updates are computed from, so that it can be followed after the audit.

Claimed: `as_json` holds the bits of both states and the gradient; the trace is `tracing.trace_update`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.audit import position_of
from guarded_moments.oracle.tracing import trace_update
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.checkpoint.encoding import scalars_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter
from guarded_moments.reference.checkpoint.state import GuardedTensor
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.op_models import OpModel


@dataclass(frozen=True)
class Stretch:
    """Coordinates of one tensor that follow one op model."""

    where: str
    claim: Claim
    lr: float
    parameter: Parameter
    model: OpModel
    options: StepOptions
    constants: GuardConstants[float]
    states: States  #: those that are stored in codes, flat
    positions: Tensor  #: int64, their places in the memory order of the tensor

    def only(self, index: int) -> Stretch:
        """One coordinate, without the memory of the others."""
        states, positions = self.states.select(torch.tensor([index])), self.positions[[index]]
        parameter = replace(self.parameter, m=states.m, v=states.v)
        return replace(self, parameter=parameter, states=states, positions=positions)

    @property
    def scalars(self) -> Scalars[float]:
        """Of the op model, at the first update."""
        return scalars_of(self.parameter, implementation_named(self.claim.implementation), self.lr)

    @property
    def trajectories(self) -> Trajectories:
        """Both updates."""
        return Trajectories(self.model, self.options, self.scalars)


@dataclass(frozen=True)
class Followed:
    """One coordinate and the worst gradient known for it."""

    stretch: Stretch  #: of this coordinate alone
    position: tuple[int, ...]  #: in the tensor
    gradient: float  #: binary32
    deviation: float  #: bit-exact at that gradient, in learning rates

    @classmethod
    def of(cls, tensor: GuardedTensor, stretch: Stretch, index: int, gradient: float, deviation: float) -> Followed:
        """A coordinate of a stretch, by its place there."""
        position = position_of(tensor.shape, tensor.stride, int(stretch.positions[index]))
        return cls(stretch.only(index), position, gradient, deviation)

    @property
    def states(self) -> States:
        """As tensors of shape (1,)."""
        return self.stretch.states

    @property
    def name(self) -> str:
        """Tensor and position."""
        return f"{self.stretch.where}[{', '.join(map(str, self.position))}]"

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """`m, v, m_hat, v_hat`."""
        m, v, m_hat, v_hat = (float(moment) for moment in self.states)
        return m, v, m_hat, v_hat

    def as_json(self) -> dict[str, Any]:
        """Plain data; binary32 values as C99 hexadecimal with bits."""
        names = ("m", "v", "m_hat", "v_hat")
        bits = {name: hex_of(value) for name, value in zip(names, self.numbers, strict=True)}
        return {
            "where": self.stretch.where,
            "op_model": self.stretch.model.name,
            "position": list(self.position),
            **bits,
            "gradient": hex_of(self.gradient),
            "deviation": self.deviation,
        }

    def trace(self) -> list[dict[str, str]]:
        """Both updates at the worst gradient, operation by operation."""
        m, v, m_hat, v_hat = self.numbers
        stretch = self.stretch
        runs = [
            trace_update(stretch.model, stretch.options, stretch.scalars, *state, self.gradient)
            for state in ((m, v), (m_hat, v_hat))
        ]
        return [
            {"name": one.name, "operation": one.formula, "native": _value(one.result), "recovered": _value(two.result)}
            for one, two in zip(*runs, strict=True)
        ]


def _value(value: float) -> str:
    """Decimal and hexadecimal: of a binary32 value, or of the exact product of two."""
    return f"{value:.9g} = {value.hex()}"
