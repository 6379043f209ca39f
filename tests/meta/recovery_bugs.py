"""REC: slips that only a resumed run shows."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import copy

import torch
from tests.meta.seeding import AfterRecovery, caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import Moments, ReferenceBackend
from guarded_moments.reference.checkpoint.optimizer_state import LARGEST, StateDict


@caught_by("REC-1")
class FirstMomentHalved(AfterRecovery):
    """The first moment's scale, halved: the test of a well-known library passes with it."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m / 2, v


@caught_by("REC-1")
class SecondMomentShrunk(AfterRecovery):
    """The second moment's scale times 0.95, rounded after the guard had seen it."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m, 0.95 * v


@caught_by("REC-1")
class StepCountLost(ReferenceBackend):
    """The run resumes at step one."""

    def recover(self, content: bytes) -> StateDict:
        state = copy.deepcopy(super().recover(content))
        for entry in state["state"].values():
            entry["step"] = torch.zeros_like(entry["step"])
        return state


@caught_by("REC-1")
class MomentsExchanged(AfterRecovery):
    """The two moments of a parameter change places."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return v, m.abs()


@caught_by("REC-1")
class StartsAnew(AfterRecovery):
    """The moments are dropped, and the first step after recovery makes new ones."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(m), torch.zeros_like(v)


@caught_by("REC-5")
class AmsgradForgotten(ReferenceBackend):
    """The guard for Adam decides about states with a third moment."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        for group in state_dict["param_groups"]:
            group["amsgrad"] = False
        return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)

    def recover(self, content: bytes) -> StateDict:
        state = super().recover(content)
        for group in state["param_groups"]:
            group["amsgrad"] = all(LARGEST in entry for entry in state["state"].values())
        return state


@caught_by("REC-5")
class ThirdMomentRounded(ReferenceBackend):
    """The third moment is stored in bfloat16."""

    def recover(self, content: bytes) -> StateDict:
        state = super().recover(content)
        for entry in state["state"].values():
            if LARGEST in entry:
                entry[LARGEST] = entry[LARGEST].bfloat16().float()
        return state


@caught_by("REC-2")
class GroupsMerged(ReferenceBackend):
    """Every parameter in the first group."""

    def recover(self, content: bytes) -> StateDict:
        state = copy.deepcopy(super().recover(content))
        first, *others = state["param_groups"]
        for group in others:
            first["params"] += group["params"]
        state["param_groups"] = [first]
        return state


@caught_by("REC-2")
class ShapesFlattened(AfterRecovery):
    """Moments come back as they were stored: flat."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m.flatten(), v.flatten()


@caught_by("REC-2")
class UnknownKeysDropped(ReferenceBackend):
    """Only the options that AdamW knows are kept: `initial_lr` of a scheduler is none."""

    def recover(self, content: bytes) -> StateDict:
        state = copy.deepcopy(super().recover(content))
        for group in state["param_groups"]:
            group.pop("initial_lr", None)
        return state


@caught_by("REC-3")
class ScaleOfTheSecondMomentIsAHundredth(ReferenceBackend):
    """The stored scale of the second moment times 0.01: the own test of a well-known library passes with it."""

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        recovered = super().round_trip(m, v)
        return Moments(recovered.m, 0.01 * recovered.v)


@caught_by("REC-3")
class ScaleOfTheFirstMomentIsHalved(ReferenceBackend):
    """The stored scale of the first moment halved: the own test of a well-known library passes with it."""

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        recovered = super().round_trip(m, v)
        return Moments(recovered.m / 2, recovered.v)
