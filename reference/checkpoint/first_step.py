"""Recovery and the first Adam step after it in one, parameter by parameter: what `recover` and `optimizer.step` do.

Claimed: parameter and moments are those of the recovered state after the step of the op model that the file names for
the tensor, element by element, bit for bit (NaN payloads apart), whichever computes them.  On a machine whose op model
that is, they are `torch.optim`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.encoding import kernel_of
from guarded_moments.reference.checkpoint.guarded import WORTH_COMPILING_DECODE, Kernels, by_kernels
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor
from guarded_moments.reference.codecs import Codes
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.platform import require_subnormals
from guarded_moments.reference.whole_tensor import WholeTensor

if TYPE_CHECKING:
    from guarded_moments.reference.kernels.codecs import Kernel


def first_step(
    state: GuardedState,
    tensor: GuardedTensor,
    parameter: Tensor,
    gradient: Tensor,
    *,
    kernels: Kernels = "auto",
    threads: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Step a parameter from its compressed moments: `parameter` in place, the moments after the step returned.

    The hyperparameters are those of the parameter's group in the file, its learning rate included.  The compiled loops
    never write the recovered moments to memory.

    Args:
        state: a compressed checkpoint.
        tensor: one of its tensors.
        parameter: float32 on CPU, in the shape and the memory layout of the moments.
        gradient: likewise, as torch's step would be given it.
        kernels: what computes, as in `recover`.
        threads: torch's intra-op threads in the run whose step this is: unfused CPU kernels divide a tensor by them.

    Returns:
        Both moments after the step, in the shape and layout of the tensor.

    Raises:
        UnsupportedError: `parameter` or `gradient` has another dtype, shape or layout.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    for name, given in (("parameter", parameter), ("gradient", gradient)):
        form = (given.dtype, tuple(given.shape), given.stride())
        if form != (torch.float32, tensor.shape, tensor.stride):
            msg = f"{tensor.where}: the {name} is {form[0]}, {form[1]}, strides {form[2]}; its moments are "
            raise UnsupportedError(f"{msg}torch.float32, {tensor.shape}, strides {tensor.stride}")
    p, g = in_memory_order(parameter), in_memory_order(gradient)
    kernel = kernel_of(tensor.codec) if by_kernels(kernels, tensor.numel, WORTH_COMPILING_DECODE) else None
    moments = _stepped(state, tensor, p, g, threads) if kernel is None else _fused(kernel, state, tensor, p, g, threads)
    m, v = (moment.as_strided(tensor.shape, tensor.stride) for moment in moments)
    return m, v


def _hyperparameters(state: GuardedState, tensor: GuardedTensor) -> Hyperparameters:
    return Hyperparameters.from_param_group(state.group_of(tensor), tensor.where)


def _stepped(
    state: GuardedState, tensor: GuardedTensor, p: Tensor, g: Tensor, threads: int | None
) -> tuple[Tensor, Tensor]:
    """Recovered, then stepped: the reference."""
    h, implementation = _hyperparameters(state, tensor), implementation_named(tensor.implementation)
    step = WholeTensor(implementation, h.options, implementation.scalars(h, tensor.next_step), threads=threads)
    after = step(p, g, *tensor.decode())
    p.copy_(after.p)
    return after.m, after.v


def _fused(
    kernel: Kernel, state: GuardedState, tensor: GuardedTensor, p: Tensor, g: Tensor, threads: int | None
) -> tuple[Tensor, Tensor]:
    """In one pass."""
    from guarded_moments.reference.kernels.first_step import FirstStep  # noqa: PLC0415 - importing numba takes half a second

    h, implementation = _hyperparameters(state, tensor), implementation_named(tensor.implementation)
    step = FirstStep(kernel, implementation, h.options, implementation.scalars(h, tensor.next_step))
    codes = Codes(tensor.m_codes, tensor.v_codes)
    return step(codes, tensor.escapes, p, g, workers=torch.get_num_threads(), threads=threads)
