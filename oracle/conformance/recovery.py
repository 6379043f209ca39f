"""REC: the claim itself, seen from outside: real optimizer steps from native and recovered states.

Parameters are zero, so that the step leaves the bare update in them and decoupled decay nothing.  Trusted: torch's
step; the gradients are the worst ones of the real-arithmetic search, random ones and zero.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance, NotJudged
from guarded_moments.oracle.conformance.inputs import log_uniform, ordinary_states, signs
from guarded_moments.oracle.conformance.optimizer_states import Pair, first_updates, moments_of, state_dict
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.traces import two_updates
from guarded_moments.reference.checkpoint.encoding import constants_of, scalars_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, StateDict, parameters_of
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.implementations import Implementation, implementation_for

#: Of the search for each worst gradient: what it then has not found is not found here.
_ROUNDS = 12
_SHAPES = (torch.Size([2051]), torch.Size([13, 5]))


@dataclass(frozen=True)
class Case:
    """A run that is resumed."""

    updates_done: int
    tolerance: float
    gradient_bound: float
    settings: dict[str, Any]

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return (
            f"AdamW({settings}), update {self.updates_done + 1}, tolerance {self.tolerance:g} lr, "
            f"|g| <= {self.gradient_bound:g}"
        )


_CASES = (
    Case(399, 0.01, 1.0, {"lr": 1e-3, "weight_decay": 0.01, "foreach": False}),
    Case(1, 0.003, 1e-4, {"lr": 1e-3, "betas": (0.9, 0.95), "foreach": True}),
    Case(100_000, 0.03, torch.inf, {"lr": 6e-4, "eps": 1e-6, "fused": True}),
)


@dataclass(frozen=True)
class _Resumed:
    """One parameter, native and recovered."""

    native: Parameter
    recovered: Pair
    implementation: Implementation
    constants: GuardConstants[float]

    @property
    def states(self) -> States:
        """All coordinates, flat."""
        return States(*(moment.flatten() for moment in (self.native.m, self.native.v, *self.recovered)))


def first_updates_after_recovery(trial: Trial) -> None:
    """REC-1."""
    for case in _CASES:
        generator = trial.generator(f"REC-1 {case}")
        native = state_dict(
            [_reshaped(*ordinary_states(generator, shape.numel()), shape) for shape in _SHAPES],
            case.updates_done,
            case.settings,
        )
        require_first_updates(generator, case, native, round_trip(trial, case, native))


def round_trip(trial: Trial, case: Case, native: StateDict) -> StateDict:
    """What the backend recovers of a state, from its own bytes."""
    content = trial.backend.compress(
        copy.deepcopy(native), tolerance=case.tolerance, gradient_bound=case.gradient_bound
    )
    return trial.backend.recover(content)


def require_first_updates(generator: torch.Generator, case: Case, native: StateDict, recovered: StateDict) -> None:
    """Make first steps from both states and compare them.

    Raises:
        NonConformance: one differs by more than the tolerance.
    """
    resumed = list(_resumed(case, native, recovered))
    for gradients in _gradients(generator, resumed):
        updates = [first_updates(state, gradients, case.settings) for state in (native, recovered)]
        for parameter, g, before, after in zip(resumed, gradients, *updates, strict=True):
            _require_close(case, parameter, g.flatten(), before.flatten(), after.flatten())


def _reshaped(m: Tensor, v: Tensor, shape: torch.Size) -> Pair:
    return m.reshape(shape), v.reshape(shape)


def _resumed(case: Case, native: StateDict, recovered: StateDict) -> Iterator[_Resumed]:
    for parameter, after in zip(parameters_of(native), moments_of(recovered), strict=True):
        try:
            implementation = implementation_for(parameter.param_group)
        except PlatformError as error:
            raise NotJudged(str(error)) from None
        claim = Claim(Tolerance(case.tolerance), GradientBound(case.gradient_bound), implementation.name)
        constants = constants_of(parameter, claim, implementation, parameter.hyperparameters.lr)
        yield _Resumed(parameter, after, implementation, constants)


def _gradients(generator: torch.Generator, resumed: list[_Resumed]) -> Iterator[list[Tensor]]:
    """For every parameter, gradients within the bound: zero, any size, the worst of each coordinate, its negative."""
    yield [torch.zeros_like(parameter.native.m) for parameter in resumed]
    yield [_scattered(generator, parameter) for parameter in resumed]
    worst = [_worst(parameter) for parameter in resumed]
    yield worst
    yield [-g for g in worst]


def _worst(parameter: _Resumed) -> Tensor:
    found = enclose(parameter.constants, parameter.states, rounds=_ROUNDS).gradient.float()
    return found.reshape(parameter.native.m.shape)


def _scattered(generator: torch.Generator, parameter: _Resumed) -> Tensor:
    v = parameter.native.v
    sizes = v.double().sqrt().flatten() * log_uniform(generator, v.numel(), 1e-2, 1e2)
    most = parameter.constants.gradient_bound / 2  # rounding to binary32 must not exceed the bound
    return (signs(generator, v.numel()) * sizes.clamp(max=most)).float().reshape(v.shape)


def _require_close(case: Case, parameter: _Resumed, g: Tensor, before: Tensor, after: Tensor) -> None:
    deviation = (after.double() - before.double()).abs().nan_to_num(nan=torch.inf)
    beyond = deviation > parameter.constants.threshold
    if not bool(beyond.any()):
        return
    at = int(deviation.argmax())
    native, implementation = parameter.native, parameter.implementation
    m, v, m_hat, v_hat, gradient = (float(x[at]) for x in (*parameter.states, g))
    lr, options = native.hyperparameters.lr, native.hyperparameters.options
    model = implementation.models[int(implementation.assign(len(g), options)[at])]
    raise NonConformance(
        f"after recovery an update differs by {float(deviation[at]) / lr:.9g} lr, tolerance {case.tolerance:g} lr",
        f"claim      {case}",
        f"where      {native.where}, element {at} of {len(g)}; {int(beyond.sum())} elements differ by too much",
        f"native     m = {hex_of(m)}  v = {hex_of(v)}  update {hex_of(float(before[at]))}",
        f"recovered  m = {hex_of(m_hat)}  v = {hex_of(v_hat)}  update {hex_of(float(after[at]))}",
        f"gradient   g = {hex_of(gradient)}",
        *two_updates(model, options, scalars_of(native, implementation, lr), (m, v), (m_hat, v_hat), gradient),
    )


REQUIREMENTS = (
    Requirement(
        "REC-1",
        "The first step of torch's AdamW after recovery differs from the native one by at most the tolerance.",
        "It is what a resumed run does; a lost step count or a scale that was rounded after the guard had seen it "
        "shows here alone.",
        Level.SOUND,
        first_updates_after_recovery,
        needs=("compress", "recover"),
    ),
)
