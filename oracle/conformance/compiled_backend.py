"""The compiled forms that this package has, as a backend of their own.

Codes and moments are those of `reference.kernels`, the first update the one step over `CompiledBinary32`, the guard the
compiled search for the worst gradient; the choice of grids and the file format are the reference's.  It is judged like
any other: a fast implementation is never its own oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments, RatioGrid, ReferenceBackend, Stepped
from guarded_moments.reference.adam import Scalars, StepOptions, make_increment, make_moments
from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.arithmetic.compiled_operations import jit
from guarded_moments.reference.checkpoint import compress, recover
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.codecs import Codes as CodecCodes
from guarded_moments.reference.codecs import Log8, Ratio8
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, in_domain
from guarded_moments.reference.guard.exact import search
from guarded_moments.reference.guard.search import Outcome, States
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.first_step import Columns, advance
from guarded_moments.reference.op_models import OpModel, SquareRoot


class CompiledBackend(ReferenceBackend):
    """The reference with its compiled codec, guard and step."""

    name = "compiled"

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        return Codes(*_kernel(grids).encode(m, v))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        return Moments(*_kernel(grids).decode(CodecCodes(*codes)))

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        """See `Backend`."""
        return Codes(*_kernel_of(Ratio8(grid.v, torch.tensor([grid.step]))).encode(m, v))

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        """See `Backend`."""
        return Moments(*_kernel_of(Ratio8(grid.v, torch.tensor([grid.step]))).decode(CodecCodes(*codes)))

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        """See `Backend`."""
        return to_bytes(compress(state_dict, tolerance=tolerance, grad_bound=gradient_bound, kernels="compiled"))

    def recover(self, content: bytes) -> StateDict:
        """See `Backend`."""
        return recover(from_bytes(content), kernels="compiled")

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`: the closed form, and the compiled search for what that rejects."""
        accepted = closed_form_guard(constants, m, v, m_hat, v_hat)
        left = (~accepted & in_domain(m, v) & in_domain(m_hat, v_hat)).nonzero().flatten()
        states = States(m, v, m_hat, v_hat).select(left)
        accepted[left] = search(constants, states).outcome == Outcome.CLEARED
        return accepted

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """See `Backend`: two compiled loops around the square root."""
        moments, increments = _compiled(model, options)
        held = Scalars(*(np.float32(value) for value in scalars))
        new_m, new_v = np.empty(len(m), dtype=np.float32), np.empty(len(m), dtype=np.float32)
        arrays = (column.contiguous().numpy() for column in (m, v, g))
        moments(*arrays, held, new_m, new_v)
        root = torch.from_numpy(new_v)
        if model.square_root is SquareRoot.PLATFORM:
            root = root.sqrt()
        else:
            with np.errstate(invalid="ignore"):
                root = torch.from_numpy(np.sqrt(new_v))
        updates = np.empty(len(m), dtype=np.float32 if model.rounds_update else np.float64)
        increments(new_m, root.numpy(), held, updates)
        return torch.from_numpy(updates)

    def first_step(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        codes: Codes,
        escapes: Tensor,
        grids: Grids,
        p: Tensor,
        g: Tensor,
    ) -> Stepped:
        """See `Backend`: one pass."""
        stepped = Stepped(p.clone(memory_format=torch.contiguous_format), torch.empty(len(p)), torch.empty(len(p)))
        m_codes, v_codes, gradient = (column.contiguous() for column in (*codes, g))
        columns = Columns(m_codes, v_codes, stepped.p, gradient, stepped.m, stepped.v)
        advance(_kernel(grids), model, options, scalars, columns, escapes)
        return stepped


def _kernel(grids: Grids) -> Kernel:
    return _kernel_of(Log8(grids.m, grids.v))


def _kernel_of(codec: Log8 | Ratio8) -> Kernel:
    kernel = Kernel.of(codec)
    if kernel is None:  # both have loops where a tensor has one grid
        raise AssertionError(codec)
    return kernel


@cache
def _compiled(model: OpModel, options: StepOptions) -> tuple[Callable[..., None], Callable[..., None]]:
    op: Any = CompiledBinary32()
    moments_of, increment = make_moments(op, model, options, jit), make_increment(op, model, jit)

    @numba.njit(error_model="numpy")
    def moments(m, v, g, k, new_m, new_v):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        for i in range(len(m)):
            new_m[i], new_v[i] = moments_of(m[i], v[i], g[i], k)

    @numba.njit(error_model="numpy")
    def increments(m, root, k, updates):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        for i in range(len(m)):
            updates[i] = increment(m[i], root[i], k)

    return moments, increments
