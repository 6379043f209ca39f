"""What the tests of the guard, the search and the oracle share: claims, pairs of states, gradients, exact updates."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import mpmath
import numpy as np
import torch
from tests.strategies import Array
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, guard_constants
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.guard.search import States, largest_gradient
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, implementation_named
from guarded_moments.reference.op_models import OpModel

#: Bits in which exact updates are computed: two subnormal `v` one unit apart change the root of `2**140` in bit 312.
PRECISION = 600

#: Names of implementations, one for each set of op models.
PATHS = tuple({implementation.models: name for name, implementation in IMPLEMENTATIONS.items()}.values())
BETAS = ((0.9, 0.999), (0.9, 0.95), (0.0, 0.99), (0.5, 0.9), (0.95, 0.98))
STEPS = (1.0, 10.0, 400.0, 1e5)
BOUNDS = (1e-3, 1.0, math.inf)


class Case(NamedTuple):
    """Everything that a claim about one tensor fixes."""

    implementation: Implementation
    options: StepOptions
    scalars: Scalars[float]
    constants: GuardConstants[float]

    @property
    def real(self) -> RealUpdate:
        """The formula that the op models approximate."""
        return real_update(self.implementation.body, self.scalars)

    @property
    def models(self) -> tuple[OpModel, ...]:
        """Of the implementation, the body's first."""
        return self.implementation.models

    def trajectories(self, model: OpModel | None = None) -> Trajectories:
        """Of one of the op models; the body's by default."""
        return Trajectories(model or self.implementation.body, self.options, self.scalars)

    def guard(self, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """Where the closed form accepts."""
        return closed_form_guard(self.constants, m, v, m_hat, v_hat)


@dataclass(frozen=True)
class Setting:
    """A claim about one tensor."""

    betas: tuple[float, float] = (0.9, 0.999)
    step: float = 10.0
    bound: float = 1.0
    lr: float = 1e-3
    eps: float = 1e-8
    tolerance: float = 0.01
    implementation: str = "torch-2.13-cpu-avx2/single"

    @property
    def hyperparameters(self) -> Hyperparameters:
        """As a param_group of AdamW without decay gives them."""
        return Hyperparameters(self.lr, *self.betas, self.eps, weight_decay=0.0, decoupled=True)

    def case(self) -> Case:
        """The claim's constants."""
        hyperparameters, implementation = self.hyperparameters, implementation_named(self.implementation)
        scalars = implementation.scalars(hyperparameters, self.step)
        claim = Claim(Tolerance(self.tolerance), GradientBound(self.bound), self.implementation)
        constants = guard_constants(claim, implementation, hyperparameters.options, scalars, self.lr)
        return Case(implementation, hyperparameters.options, scalars, constants)


def settings(rng: np.random.Generator, count: int, *, unusual: bool = True) -> Iterator[Setting]:
    """Claims of all kinds: every implementation in turn, each with any betas, step and bound.

    Args:
        rng: chooses.
        count: how many.
        unusual: tiny learning rates and unusual eps too.
    """
    rates = [(1e-3, 1e-8), (1e-2, 1e-12), (1e-40, 1e-6), (3e-4, 1e-3)] if unusual else [(1e-3, 1e-8)]
    for i in range(count):
        implementation = PATHS[i % len(PATHS)]
        lr, eps = rates[rng.integers(len(rates))]
        if ("compiled" in implementation or "capturable" in implementation) and lr < 1e-30:
            lr = 1e-3  # there 1/lr is a constant of the kernel or scales its denominator, and overflows
        yield Setting(
            betas=BETAS[rng.integers(len(BETAS))],
            step=STEPS[rng.integers(len(STEPS))],
            bound=BOUNDS[rng.integers(len(BOUNDS))],
            lr=lr,
            eps=eps,
            implementation=implementation,
        )


def _log_uniform(rng: np.random.Generator, count: int, low: float, high: float) -> Array:
    return (2.0 ** rng.uniform(low, high, count)).astype(np.float32)


def _domain(values: Array, largest: float) -> Array:
    """Inside the guard's domain: not huge, and no minus zero."""
    return np.where(values == 0, np.float32(0), np.clip(values, -largest, largest)).astype(np.float32)


def pairs(count: int, rng: np.random.Generator) -> States:
    """Native and recovered states in the guard's domain, the recovered ones from very near to far.

    A third is what training leaves; the rest has a zero, subnormal or huge moment, or a first moment far too large
    for its second.  Every sixth recovered moment is the native one, every sixth its neighbour.
    """
    kind = rng.integers(9, size=count)
    v = _log_uniform(rng, count, -50, 10)
    v = np.where(kind == 0, np.float32(0), v)
    v = np.where(kind == 1, _log_uniform(rng, count, -149, -126), v)
    v = np.where(kind == 2, _log_uniform(rng, count, -149, 100), v)
    m = np.sqrt(v) * _log_uniform(rng, count, -8, 3)
    m = np.where(kind == 0, _log_uniform(rng, count, -149, 0), m)
    m = np.where(kind == 3, _log_uniform(rng, count, -149, 60), m)
    m = np.where(kind == 4, np.float32(0), m)
    m = np.where(kind == 5, _log_uniform(rng, count, -149, -120), m)
    m = m * rng.choice(np.array([-1, 1], dtype=np.float32), count)

    def recovered(native: Array) -> Array:
        off = native * (1 + 2.0 ** rng.uniform(-26, 0, count) * rng.uniform(-1, 1, count))
        how = rng.integers(6, size=count)
        off = np.where(how == 0, native, off.astype(np.float32))
        return np.where(how == 1, np.nextafter(native, np.float32(rng.choice([0.0, 1.0]))), off)

    m_hat, v_hat = recovered(m), recovered(v)
    v_hat = np.where((kind < 2) & (rng.random(count) < 0.3), _log_uniform(rng, count, -149, -60), v_hat)
    m_hat = np.where(rng.random(count) < 0.05, -m, m_hat)
    return States(
        *(
            torch.from_numpy(_domain(moment, largest))
            for moment, largest in ((m, 2.0**60), (v, 2.0**100), (m_hat, 2.0**60), (v_hat, 2.0**100))
        )
    )


def trained_pairs(count: int, rng: np.random.Generator, off: float = 0.05) -> States:
    """States as training leaves them, recovered within a relative `off`."""
    scale = 2.0 ** rng.uniform(-30, -4, count)
    v = scale**2 * rng.uniform(0.1, 3, count)
    m = scale * rng.standard_normal(count)
    m_hat, v_hat = (x * (1 + off * rng.uniform(-1, 1, count)) for x in (m, v))
    return States(*(torch.from_numpy(x.astype(np.float32)) for x in (m, v, m_hat, v_hat)))


def gradients(constants: GuardConstants[float], states: States, per: int) -> Tensor:
    """For each coordinate, gradients of both signs within the bound: float32, shape (4*per + 8, n).

    Evenly in the logarithm over all of binary32 and, three decades either way, around where the denominator bends;
    zeros, the smallest, the bound and its neighbour.
    """
    last = largest_gradient(constants)
    everywhere = torch.logspace(-45, math.log10(last), per, dtype=torch.float64).unsqueeze(1)
    smaller = torch.minimum(states.v, states.v_hat).double() * constants.radicand
    bend = (smaller.sqrt() + constants.eps) * constants.gap_cap
    near = torch.logspace(-3, 3, per, dtype=torch.float64).unsqueeze(1) * bend
    special = torch.tensor([0.0, 1e-45, last, float(np.nextafter(np.float32(last), np.float32(0)))]).double()
    rows = (everywhere.expand(per, len(bend)), near, special.unsqueeze(1).expand(4, len(bend)))
    g = torch.cat(rows).clamp(max=last).float()
    return torch.cat([g, -g])


def repeated(states: States, times: int) -> States:
    """The coordinates, all of them `times` over."""
    return States(*(moment.repeat(times) for moment in states))


def sampled_worst(
    case: Case, states: States, per: int, models: tuple[OpModel, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """The largest bit-exact deviation seen over `gradients` and all op models, and a gradient that gives it; (n,)."""
    g = gradients(case.constants, states, per)
    many = repeated(states, len(g))
    worst, at = torch.full((len(states.m),), -1.0, dtype=torch.float64), torch.zeros(len(states.m))
    for model in models or case.models:
        values, row = case.trajectories(model).deviations(many, g.reshape(-1)).reshape(g.shape).max(dim=0)
        at = torch.where(values > worst, g.gather(0, row.unsqueeze(0)).squeeze(0), at)
        worst = torch.maximum(worst, values)
    return worst, at


def describe(states: States, index: int) -> str:
    """One coordinate's states, in bits."""
    return ", ".join(
        f"{name} = {hex_of(float(moment[index]))}" for name, moment in zip(states._fields, states, strict=True)
    )


def exact_update(real: RealUpdate, m: float, v: float, g: float) -> mpmath.mpf:
    """One update in real arithmetic, over minus the step size: `M / (S + eps)`.  Call it at `PRECISION` bits."""
    w, complement, c, beta2, root, eps, _ = (mpmath.mpf(x.numerator) / x.denominator for x in real)
    m, v, g = mpmath.mpf(m), mpmath.mpf(v), mpmath.mpf(g)
    return (complement * m + w * g) / (mpmath.sqrt(beta2 * v + c * g * g) / root + eps)


def exact_deviation(real: RealUpdate, state: tuple[float, float, float, float], g: float) -> mpmath.mpf:
    """`|N(g)|`: the distance of both updates in real arithmetic, over the step size."""
    m, v, m_hat, v_hat = state
    return abs(exact_update(real, m_hat, v_hat, g) - exact_update(real, m, v, g))
