"""The claims under which guards and updates are judged: op models, hyperparameters, tolerance, gradient bound.

Few and far apart: early and late steps, a tolerance that rounding alone nearly uses up, denominators that `eps`
dominates, moment weights above one half, no gradient bound and a tiny one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.guard import GuardConstants, guard_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import Implementation, implementation_named
from guarded_moments.reference.op_models import OpModel


@dataclass(frozen=True)
class Scene:
    """A claim about one tensor."""

    op_model: str  #: name of an implementation
    tolerance: float
    gradient_bound: float
    step: float  #: number of the update
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """Of AdamW without weight decay, which does not touch the update."""
        return Hyperparameters(self.lr, *self.betas, self.eps, weight_decay=0.0, decoupled=True)

    @property
    def implementation(self) -> Implementation:
        """The op models of a tensor's body and tail."""
        return implementation_named(self.op_model)

    @property
    def models(self) -> tuple[OpModel, ...]:
        """The op models that a guard must cover."""
        return self.implementation.models

    @property
    def options(self) -> StepOptions:
        """The choices that are made once per tensor."""
        return self.hyperparameters.options

    @cached_property
    def scalars(self) -> Scalars[float]:
        """The kernel's constants."""
        return self.implementation.scalars(self.hyperparameters, self.step)

    @cached_property
    def constants(self) -> GuardConstants[float]:
        """The guard's constants."""
        claim = Claim(Tolerance(self.tolerance), GradientBound(self.gradient_bound), self.op_model)
        return guard_constants(claim, self.implementation, self.options, self.scalars, self.lr)

    def __str__(self) -> str:
        bound = "any g" if self.gradient_bound == inf else f"|g| <= {self.gradient_bound:g}"
        return (
            f"{self.op_model}, update {self.step:g}, lr {self.lr:g}, betas {self.betas}, eps {self.eps:g}, "
            f"tolerance {self.tolerance:g} lr, {bound}"
        )


_AVX2, _DEFAULT = "torch-2.13-cpu-avx2", "torch-2.13-cpu-default"

SCENES = (
    Scene(f"{_AVX2}/single", tolerance=0.01, gradient_bound=1.0, step=400),
    Scene(f"{_AVX2}/fused", tolerance=0.01, gradient_bound=inf, step=100_000),
    Scene(f"{_DEFAULT}/single", tolerance=1e-4, gradient_bound=1e-3, step=2, lr=6e-4, betas=(0.9, 0.95)),
    Scene(f"{_DEFAULT}/fused", tolerance=1e-5, gradient_bound=inf, step=1, lr=1.0),
    Scene(f"{_AVX2}/single", tolerance=0.03, gradient_bound=3e-3, step=30, betas=(0.95, 0.98), eps=1e-3),
    Scene(f"{_AVX2}/fused", tolerance=0.1, gradient_bound=10.0, step=2.0**24, eps=1e-12),
    Scene(f"{_AVX2}/single", tolerance=0.01, gradient_bound=100.0, step=50, betas=(0.5, 0.9)),
    Scene(f"{_DEFAULT}/fused", tolerance=0.01, gradient_bound=1.0, step=7, betas=(0.0, 0.99)),
    Scene(f"{_AVX2}/compiled", tolerance=0.01, gradient_bound=1.0, step=400),
    Scene("torch-2.14-cuda/single", tolerance=0.01, gradient_bound=inf, step=1000),
    Scene("torch-2.14-cuda/foreach", tolerance=1e-3, gradient_bound=1.0, step=3, betas=(0.9, 0.95)),
    Scene("torch-2.14-cuda/capturable", tolerance=0.01, gradient_bound=1.0, step=100_000),
    Scene("torch-2.14-cuda-sm75-sm90/fused", tolerance=1e-4, gradient_bound=1.0, step=10, betas=(0.5, 0.9)),
)
