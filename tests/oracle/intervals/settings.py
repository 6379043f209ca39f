"""Claims and coordinates on which the interval oracle is tried."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from guarded_moments.oracle.intervals import (
    Deviation,
    Numbers,
)
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import GuardConstants, guard_constants
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import OpModel

LR = 1e-3
#: The enclosures that are compared stay open by this share, and hold for this many coordinates of each setting.
GAP, COUNT = 0.01, 2


class Setting(NamedTuple):
    """What one tensor fixes: an op model, the hyperparameters that differ between settings, a claim."""

    implementation: str
    model: int  #: which of the implementation's
    beta1: float
    step: float
    bound: float

    def __str__(self) -> str:
        name = IMPLEMENTATIONS[self.implementation].models[self.model].name
        return f"{name}, beta1 = {self.beta1}, t = {self.step:g}, G = {self.bound:g}"


class Tensor(NamedTuple):
    """What follows from a setting."""

    setting: Setting
    model: OpModel
    options: StepOptions
    scalars: Scalars[float]
    constants: GuardConstants
    trajectories: Trajectories


@cache
def tensor_of(setting: Setting) -> Tensor:
    implementation = IMPLEMENTATIONS[setting.implementation]
    model = implementation.models[setting.model]
    fused = setting.implementation.endswith("fused")
    hyperparameters = Hyperparameters(LR, setting.beta1, 0.999, 1e-8, 0.0, decoupled=False, fused=fused)
    options = hyperparameters.options
    scalars = implementation.scalars(hyperparameters, setting.step)
    claim = Claim(Tolerance(0.01), GradientBound(setting.bound), setting.implementation)
    constants = guard_constants(claim, implementation, options, scalars, LR)
    return Tensor(setting, model, options, scalars, constants, Trajectories(model, options, scalars))


CLAIMS = [(0.9, step, bound) for step, bound in product((1, 400, 1e5), (1e-3, 1.0, math.inf))]
CLAIMS.append((0.3, 400, 1.0))  # the interpolation is then written from the other end
MEASURED = [
    ("torch-2.13-cpu-avx2/single", 0),
    ("torch-2.13-cpu-default/single", 0),
    ("torch-2.13-cpu-avx2/fused", 0),
    ("torch-2.13-cpu-avx2/fused", 1),
]
OTHERS = [
    (name, index)
    for name, implementation in IMPLEMENTATIONS.items()
    for index in range(len(implementation.models))
    if (name, index) not in MEASURED and not re.fullmatch(r".*cpu.*/foreach", name)  # its models are single's
]
SETTINGS = [Setting(*model, *claim) for model, claim in product(MEASURED, CLAIMS)]
SETTINGS += [Setting(*model, *claim) for model, claim in product(OTHERS, ((0.9, 1000, math.inf), (0.3, 3, 1.0)))]


class Coordinate(NamedTuple):
    """Native and recovered moments, binary32."""

    m: float
    v: float
    m_hat: float
    v_hat: float

    @property
    def states(self) -> States:
        """As the search wants it."""
        return States(*(torch.tensor([moment]) for moment in self))


def coordinate(rng: np.random.Generator) -> Coordinate:
    """What a codec may leave of a coordinate: decoded within 5 %, mostly; now and then something wilder."""
    scale = 10.0 ** rng.uniform(-12, 0)
    m, v = scale * rng.standard_normal(), np.square(scale * rng.lognormal())
    kind = rng.choice(["zero v", "subnormal v", "m only", "v only", "far"]) if rng.random() < 0.3 else ""
    v = 0.0 if kind == "zero v" else rng.uniform(0, 2.0**-126) if kind == "subnormal v" else v
    m_error, v_error = rng.uniform(-0.05, 0.05, size=2)
    if kind == "far":
        m_error, v_error = rng.choice([-2.0, -1.0, 0.5, 3.0]), rng.choice([-0.99, 1.0, 30.0])
    m_hat = m * (1 + m_error * (kind != "v only"))
    v_hat = v * (1 + v_error * (kind != "m only"))
    return Coordinate(*(float(np.float32(moment)) for moment in (m, v, m_hat, v_hat)))


def deviation_of(tensor: Tensor, state: Coordinate, numbers: Numbers = Numbers.MPMATH) -> Deviation:
    return Deviation(tensor.model, tensor.options, tensor.scalars, *state, numbers=numbers)


def described(tensor: Tensor, state: Coordinate, g: float, **numbers: object) -> str:
    """A coordinate and a gradient as bits, and whatever was found there."""
    named = {**state._asdict(), "g": g}
    bits = ", ".join(f"{name} = {hex_of(value)}" for name, value in named.items())
    return "\n  ".join((f"{tensor.setting}: {bits}", *(f"{name}: {value}" for name, value in numbers.items())))
