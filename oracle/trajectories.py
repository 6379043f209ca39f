"""Both updates of a coordinate in the bit-exact op model, and their exact distance.

Claimed: `deviations` is the distance of the two binary32 updates, rounded up to binary64 only where it is no binary64
(so `deviation <= threshold` is decided exactly).  `upper` bounds it over a cell of gradients without evaluating each:
rounding to nearest is monotone, so the program's values at the ends of a cell bound its values inside, wherever the
exact operation is monotone in each operand.  Trusted: the arithmetic, and that the platform's root is monotone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.reference.adam import (
    Scalars,
    StepOptions,
    make_amsgrad_update,
    make_increment,
    make_moments,
    make_root,
    make_update,
)
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.op_models import Interpolation, OpModel


class Trajectories:
    """The native and the recovered update of one op model, for coordinates of one tensor."""

    def __init__(self, model: OpModel, options: StepOptions, scalars: Scalars[float]) -> None:
        """Fix the op model and its constants.

        Args:
            model: the op model that both updates follow.
            options: per-tensor choices.
            scalars: the kernel's constants.
        """
        op = TorchBinary32()
        self._scalars = Scalars(*(op.constant(value) for value in scalars))
        self._moments = make_moments(op, model, options)
        self._root = make_root(op, model)
        self._increment = make_increment(op, model)
        self._update = make_update(op, model, options)
        #: Written from the other end, the interpolation is not a composition of monotone operations.
        self._monotone = not options.interpolate_from_end or model.interpolation is Interpolation.FMA_TWICE

    def updates(self, states: States, g: Tensor) -> tuple[Tensor, Tensor]:
        """The native and the recovered update: binary32 values or exact products, in float64, units of the parameter.

        Args:
            states: coordinates, shape (n,).
            g: a gradient for each, float32, shape (n,).
        """
        native = self._update(states.m, states.v, g, self._scalars)
        recovered = self._update(states.m_hat, states.v_hat, g, self._scalars)
        return native.double(), recovered.double()

    def deviations(self, states: States, g: Tensor) -> Tensor:
        """`|U_hat - U|`, float64, rounded up; infinite where the updates differ and one is not finite."""
        return _distance_up(*self.updates(states, g))

    def after(self, states: States, g: Tensor) -> States:
        """Both states after the update, each with its own moments; arguments as `updates`."""
        m, v = self._moments(states.m, states.v, g, self._scalars)
        return States(m, v, *self._moments(states.m_hat, states.v_hat, g, self._scalars))

    def upper(self, states: States, near: Tensor, far: Tensor) -> Tensor:
        """At least the deviation at every binary32 gradient between `near` and `far`; float64 (n,).

        Infinite for op models whose interpolation is not monotone step by step.

        Args:
            states: coordinates, shape (n,).
            near: a gradient for each, float32, shape (n,).
            far: another, not smaller in magnitude, and of the same sign where `near` is not 0.
        """
        if not self._monotone:
            return torch.full_like(near, torch.inf, dtype=torch.float64)
        native = self._range(states.m, states.v, near, far)
        recovered = self._range(states.m_hat, states.v_hat, near, far)
        return torch.maximum(
            _distance_up(native[0].double(), recovered[1].double()),
            _distance_up(native[1].double(), recovered[0].double()),
        )

    def _range(self, m: Tensor, v: Tensor, near: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest update for gradients between `near` and `far` (of one sign, |near| <= |far|)."""
        m_near, v_near = self._moments(m, v, near, self._scalars)
        m_far, v_far = self._moments(m, v, far, self._scalars)
        roots = (self._root(v_near), self._root(v_far))
        corners = torch.stack(
            [self._increment(first, root, self._scalars) for first in (m_near, m_far) for root in roots]
        )
        return corners.amin(dim=0), corners.amax(dim=0)


class AmsgradTrajectories:
    """The same with amsgrad, where both updates divide by the root of the larger of `v'` and one `v_max`."""

    def __init__(self, model: OpModel, options: StepOptions, scalars: Scalars[float]) -> None:
        """Fix the op model and its constants, as for `Trajectories`."""
        op = TorchBinary32()
        self._scalars = Scalars(*(op.constant(value) for value in scalars))
        self._update = make_amsgrad_update(op, model, options)
        self._beta2 = float(scalars.beta2)

    def overtaking(self, v: Tensor, v_max: Tensor) -> Tensor:
        """About the magnitude of the gradient at which `v'` becomes `v_max`; float64, 0 where it is that already."""
        return ((v_max.double() - self._beta2 * v.double()).clamp(min=0.0) / (1.0 - self._beta2)).sqrt()

    def deviations(self, states: States, v_max: Tensor, g: Tensor) -> Tensor:
        """`|U_hat - U|`, float64, rounded up; infinite where the updates differ and one is not finite.

        Args:
            states: coordinates, shape (n,).
            v_max: the third moment that both states have, float32, shape (n,).
            g: a gradient for each, float32, shape (n,).
        """
        native = self._update(states.m, states.v, v_max, g, self._scalars)
        recovered = self._update(states.m_hat, states.v_hat, v_max, g, self._scalars)
        return _distance_up(native.double(), recovered.double())


def _distance_up(a: Tensor, b: Tensor) -> Tensor:
    """`|a - b|` of float64 tensors, rounded up to float64."""
    difference = a - b
    back = difference - a
    error = (a - (difference - back)) - (b + back)  # TwoSum: exact where finite
    distance = difference.abs()
    outward = torch.where(difference < 0, -error, error) > 0
    distance = torch.where(outward, torch.nextafter(distance, torch.full_like(distance, torch.inf)), distance)
    same = a == b
    return torch.where(same, 0.0, torch.where(distance.isnan(), torch.inf, distance))
