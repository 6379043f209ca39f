"""ERR: slips in what is refused."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import io
import math

import torch
from tests.meta.seeding import caught_by

from guarded_moments.oracle.conformance import ReferenceBackend
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.errors import GuardedMomentsError


@caught_by("ERR-1")
class AnyToleranceWillDo(ReferenceBackend):
    """A tolerance that is none is replaced by the default."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        usable = tolerance if 0 < tolerance < math.inf else 0.01
        return super().compress(state_dict, tolerance=usable, gradient_bound=gradient_bound)


@caught_by("ERR-1")
class RefusesWithoutAWord(ReferenceBackend):
    """`assert tolerance > 0`."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        if not 0 < tolerance < math.inf:
            raise AssertionError
        return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)


@caught_by("ERR-2")
class MissingMomentsAreZero(ReferenceBackend):
    """A state without a second moment is completed with zeros."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        for entry in state_dict["state"].values():
            if "exp_avg" in entry:
                entry.setdefault("exp_avg_sq", torch.zeros_like(entry["exp_avg"]))
        return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)


@caught_by("ERR-2")
class StepIsOneByDefault(ReferenceBackend):
    """A state without a step count starts from one."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        for entry in state_dict["state"].values():
            entry.setdefault("step", torch.tensor(1.0))
        return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)


class _WithoutDigest(ReferenceBackend):
    """A file that is only torch.save of the recovered state."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        content = super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
        buffer = io.BytesIO()
        torch.save(self._recovered(content), buffer)
        return buffer.getvalue()

    def _recovered(self, content: bytes) -> StateDict:
        return ReferenceBackend.recover(self, content)

    def recover(self, content: bytes) -> StateDict:
        state: StateDict = torch.load(io.BytesIO(content), weights_only=True)
        return state


@caught_by("ERR-3")
class NoDigest(_WithoutDigest):
    """Nothing says whether the bytes are those that were written."""


@caught_by("ERR-3")
class EmptyFileIsAnEmptyState(ReferenceBackend):
    """A file that was cut off to nothing is taken for an optimizer that never stepped."""

    def recover(self, content: bytes) -> StateDict:
        return super().recover(content) if content else {"state": {}, "param_groups": []}


@caught_by("ERR-4")
class EpsIsNeverZero(ReferenceBackend):
    """An eps of zero is taken for 1e-8, and the file promises what the run does not keep."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        try:
            return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
        except GuardedMomentsError:
            for group in state_dict["param_groups"]:
                group["eps"] = group["eps"] or 1e-8
            return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
