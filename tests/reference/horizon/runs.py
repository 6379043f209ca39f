"""What the tests of the horizon share: runs of several updates, exact ones beside binary32 ones, and sequences."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import mpmath
import numpy as np
from tests.reference.guard.cases import PATHS
from tests.strategies import Array

from guarded_moments.reference.adam import Scalars, make_moments, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.horizon import Run, later_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.op_models import OpModel

#: Bits of exact runs: binary32 inputs, and some hundred updates that each lose a unit.
PRECISION = 400
FUSED = "torch-2.13-cpu-avx2/fused"


def run_of(
    betas: tuple[float, float] = (0.9, 0.999),
    step: float = 400.0,
    eps: float = 1e-8,
    lr: float = 1e-3,
    implementation: str = FUSED,
) -> Run:
    hyperparameters = Hyperparameters(lr, *betas, eps, weight_decay=0.0, decoupled=True)
    return Run(implementation_named(implementation), hyperparameters, step, lr)


def constants_of(run: Run, updates: int, bound: float = math.inf) -> Sequence[GuardConstants[float]]:
    return later_constants(Claim(Tolerance(0.01), GradientBound(bound), run.implementation.name, Horizon(updates)), run)


def runs(rng: np.random.Generator, count: int) -> Iterator[Run]:
    """Runs of every implementation in turn, with betas on both sides of `beta1**2 = beta2`, early and late."""
    betas = ((0.9, 0.999), (0.9, 0.95), (0.0, 0.99), (0.5, 0.9), (0.95, 0.9))
    for i in range(count):
        yield run_of(
            betas[rng.integers(len(betas))],
            (1.0, 10.0, 400.0, 1e5)[rng.integers(4)],
            (1e-8, 1e-12, 1e-3)[rng.integers(3)],
            implementation=PATHS[i % len(PATHS)],
        )


class ExactState(NamedTuple):
    """Moments of the formula, one number a coordinate."""

    m: list[mpmath.mpf]
    v: list[mpmath.mpf]

    @classmethod
    def of(cls, m: Array, v: Array) -> "ExactState":
        """Binary32 moments as exact numbers."""
        return cls([mpmath.mpf(float(x)) for x in m], [mpmath.mpf(float(x)) for x in v])

    def after(self, real: RealUpdate, g: Array) -> "ExactState":
        """After an update, by the formula."""
        w, beta1, c, beta2 = (number(getattr(real, name)) for name in ("w", "complement", "c", "beta2"))
        drawn = [mpmath.mpf(float(x)) for x in g]
        m = [beta1 * m + w * x for m, x in zip(self.m, drawn, strict=True)]
        return ExactState(m, [beta2 * v + c * x * x for v, x in zip(self.v, drawn, strict=True)])

    def update(self, real: RealUpdate) -> list[mpmath.mpf]:
        """What these new moments add to the parameter, as torch has it: with a negative step size."""
        step, root, eps = (number(getattr(real, name)) for name in ("step", "root", "eps"))
        return [-step * m / (mpmath.sqrt(v) / root + eps) for m, v in zip(self.m, self.v, strict=True)]


def number(value: object) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator  # type: ignore[attr-defined]


def moments_of(run: Run, model: OpModel, update: int) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """The op model's new moments in binary32, on NumPy."""
    op = NumpyBinary32()
    constants = Scalars(*(op.constant(value) for value in run.scalars(update)))
    made = make_moments(op, model, run.hyperparameters.options)
    return lambda m, v, g: made(m, v, g, constants)


def updates_of(run: Run, model: OpModel, update: int, m: Array, v: Array, g: Array) -> Array:
    """The op model's updates in binary32, on NumPy."""
    op = NumpyBinary32()
    constants = Scalars(*(op.constant(value) for value in run.scalars(update)))
    return make_update(op, model, run.hyperparameters.options)(m, v, g, constants)


def sequences(rng: np.random.Generator, run: Run, v: Array, updates: int) -> Array:
    """Gradients, float32 (updates, n): noise, bursts after silence, growth as in the worst case, steps of one size."""
    count = len(v)
    scale = np.sqrt(v.astype(np.float64)) + 1e-12
    kinds = rng.integers(4, size=count)
    ages = np.arange(updates - 1, -1, -1)[:, None]
    real = run.real(1)
    growth = float(real.complement / real.beta2) or 0.5
    signs = rng.choice([-1.0, 1.0], count)
    made = (
        rng.standard_normal((updates, count)) * 2.0 ** rng.uniform(-4, 8, count),
        np.where(ages < rng.integers(1, updates + 1, count), signs * 2.0 ** rng.uniform(0, 8, count), 0.0),
        signs * 2.0 ** rng.uniform(-2, 8, count) * growth**ages,
        np.broadcast_to(signs * 2.0 ** rng.uniform(-4, 8, count), (updates, count)),
    )
    return (np.choose(kinds, [one * scale for one in made])).astype(np.float32)


def gamma(real: RealUpdate, gradients: Array) -> list[mpmath.mpf]:
    """What stands for a sequence in the units of `reduction`: `y**2 = sum beta2**-i g_i**2`."""
    beta2 = number(real.beta2)
    squares = [[mpmath.mpf(float(x)) ** 2 / beta2 ** (i + 1) for x in row] for i, row in enumerate(gradients)]
    return [mpmath.sqrt(mpmath.fsum(column)) for column in zip(*squares, strict=True)]
