"""The Triton kernels that this package has, as a backend of their own: on a GPU where there is one, else interpreted.

Codes, guard, first update and first step are those of `reference.kernels.triton_codecs`.  An op model whose root is a
CPU's vector library's is not claimed: no GPU has it.  It is judged like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments, Stepped
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.codecs import Codes as CodecCodes
from guarded_moments.reference.codecs import Log8
from guarded_moments.reference.guard import GuardConstants, in_domain
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.kernels.triton_codecs import TritonKernel
from guarded_moments.reference.kernels.triton_formulas import constants_array, make_judge, make_update_at
from guarded_moments.reference.kernels.triton_kernels import judge_kernel, launch, update_kernel
from guarded_moments.reference.op_models import OpModel, SquareRoot


class TritonBackend:
    """Codes, guard and steps by Triton."""

    name = "triton"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    op_models = tuple(
        name for name, known in IMPLEMENTATIONS.items() if known.body.square_root is not SquareRoot.PLATFORM
    )

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        return Codes(*_kernel(grids, m.device).encode(m, v))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        return Moments(*_kernel(grids, codes.m.device).decode(CodecCodes(*codes)))

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`: the closed form."""
        interpreted = m.device.type == "cpu"
        columns = [column.contiguous() for column in (m, v, m_hat, v_hat)]
        within = torch.empty(len(m), dtype=torch.uint8, device=m.device)
        judge = make_judge(interpreted=interpreted)
        launch(judge_kernel, len(m), interpreted, *columns, within, constants_array(constants, m.device), judge=judge)
        return within.bool() & in_domain(m, v) & in_domain(m_hat, v_hat)

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """See `Backend`."""
        interpreted = m.device.type == "cpu"
        out = torch.empty(len(m), dtype=torch.float32 if model.rounds_update else torch.float64, device=m.device)
        held = torch.tensor(list(scalars), dtype=torch.float32, device=m.device)
        update = make_update_at(model, options, interpreted=interpreted)
        columns = [column.contiguous() for column in (m, v, g)]
        launch(update_kernel, len(m), interpreted, *columns, out, held, update=update)
        return out

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
        stepped = p.clone(memory_format=torch.contiguous_format)
        kernel = _kernel(grids, p.device)
        moments = kernel.step(model, options, scalars, CodecCodes(*codes), escapes, stepped, g.contiguous())
        return Stepped(stepped, *moments)


def _kernel(grids: Grids, device: torch.device) -> TritonKernel:
    kernel = TritonKernel.of(Log8(grids.m, grids.v), device)
    if kernel is None:  # log8 with a grid a moment has kernels
        raise AssertionError(grids)
    return kernel
