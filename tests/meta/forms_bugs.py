"""FMT: slips in the form of answers and bytes."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import itertools
from typing import Any

import torch
from tests.meta.seeding import caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import Codes, Grids, Moments, ReferenceBackend
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.guard import GuardConstants


@caught_by("FMT-1")
class WorksInPlace(ReferenceBackend):
    """The magnitude is formed where the moment was."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        m.abs_()
        return codes


@caught_by("FMT-1")
class EmptyTensorIsNone(ReferenceBackend):
    """A launch with no block returns before the output is made."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) if len(m) else torch.empty(1, dtype=torch.bool)


@caught_by("FMT-1")
class DecodesToDouble(ReferenceBackend):
    """The table is one of doubles."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        return Moments(*(moment.double() for moment in super().decode(codes, grids)))


_CALLS = itertools.count()


@caught_by("FMT-2")
class WritesTheTime(ReferenceBackend):
    """A file says when it was written."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        content = super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
        return content + f"written {next(_CALLS)}".encode()

    def recover(self, content: bytes) -> StateDict:
        return super().recover(content[: content.rindex(b"written")])


@caught_by("FMT-2")
class CompressesTheLiveState(ReferenceBackend):
    """The state is rounded where it is, and the run goes on from what was saved."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        content = super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
        for key, entry in self.recover(content)["state"].items():
            live: dict[str, Any] = state_dict["state"][key]
            live["exp_avg"].copy_(entry["exp_avg"])
        return content


@caught_by("FMT-3")
class OtherByteOrder(ReferenceBackend):
    """Written back to front, and read so by itself."""

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        return super().compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)[::-1]

    def recover(self, content: bytes) -> StateDict:
        return super().recover(content[::-1])
