"""The binary32 constants that a kernel holds at a given step, by the way its path forms them.

Claimed: they equal what torch hands to its kernels, bit for bit, for the paths whose evidence is `measured`; for CUDA
they follow the emulated or read sequences.  Trusted: Python's doubles, torch's own 0-d operations where torch uses
them, the C library's `powf` for compiled steps, and `cuda_powf` for CUDA.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from enum import Enum
from functools import cache

import numpy as np
import torch

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.cuda_powf import cuda_powf
from guarded_moments.reference.errors import PlatformError, UnsupportedError
from guarded_moments.reference.floats import round_to_binary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.op_models import Correction

#: A Python double, or a 0-d float32 tensor where torch computes with one.
Number = float | torch.Tensor
_POWER = Callable[[float, float], float]
_HALF = 0.5


class Constants(Enum):
    """Who computes the bias corrections and the step size, and in which precision."""

    HOST = "Python doubles, each rounded once; binary32 where lr or the betas are tensors"
    DEVICE = "binary32 on the device from binary32 hyperparameters: CUDA fused"
    CAPTURABLE = "0-d binary32 tensors, the step size inside the denominator: capturable single on CUDA"
    CAPTURABLE_FOREACH = "0-d binary32 tensors, the step size divides the denominator: capturable foreach on CUDA"
    COMPILED = "as capturable single, with the C library's powf: torch.compile of single on CPU"
    COMPILED_FOREACH = "as capturable foreach, with the C library's powf: torch.compile of foreach on CPU"


def kernel_scalars(
    hyperparameters: Hyperparameters,
    step: float,
    constants: Constants = Constants.HOST,
    correction: Correction = Correction.DIVIDE,
) -> Scalars[float]:
    """The constants of update number `step`, each a binary32 value held in a Python float.

    Args:
        hyperparameters: of the param_group.
        step: the number of the update, 1 for the first; finite.
        constants: how the path forms them.
        correction: whether the kernel divides by `root` or multiplies with its reciprocal.

    Raises:
        UnsupportedError: betas as tensors in a capturable or compiled foreach step, whose op sequence is another; in a
            compiled step a `beta1` that only binary32 takes for 1/2.
    """
    if constants is Constants.HOST:
        return _by_host(hyperparameters, step, correction)
    if constants is Constants.DEVICE:
        scalars = _by_device(hyperparameters, step)
    else:
        power = cuda_powf if constants in {Constants.CAPTURABLE, Constants.CAPTURABLE_FOREACH} else c_library_powf
        foreach = constants in {Constants.CAPTURABLE_FOREACH, Constants.COMPILED_FOREACH}
        scalars = (_by_lists_of_tensors if foreach else _by_tensors)(hyperparameters, step, power)
        if power is c_library_powf:
            scalars = _as_compiled(hyperparameters, scalars, foreach=foreach)
    if correction is Correction.MULTIPLY and scalars.root:
        scalars = scalars._replace(root=round_to_binary32(1 / scalars.root))
    return scalars


def _by_host(h: Hyperparameters, step: float, correction: Correction) -> Scalars[float]:
    """torch/optim/adam.py, `_single_tensor_adam` and the fused CPU kernel; the expressions are its own."""
    tensors_count = not h.fused  # the fused kernel takes doubles, so a tensor is only its value
    lr: Number = torch.tensor(h.lr, dtype=torch.float32) if h.lr_is_tensor and tensors_count else h.lr
    beta1: Number = torch.tensor(h.beta1, dtype=torch.float32) if h.betas_are_tensors and tensors_count else h.beta1
    beta2: Number = torch.tensor(h.beta2, dtype=torch.float32) if h.betas_are_tensors and tensors_count else h.beta2
    bias_correction1 = 1 - beta1**step
    bias_correction2 = 1 - beta2**step
    root = bias_correction2**0.5
    return _assemble(
        h,
        w=1 - beta1,
        c=1 - beta2,
        root=1 / root if correction is Correction.MULTIPLY and root else root,  # in double, then rounded once
        eps=h.eps,
        step=-(lr / bias_correction1),
        shrink=1 - lr * h.weight_decay,
    )


def _by_device(h: Hyperparameters, step: float) -> Scalars[float]:
    """CUDA's fused kernel: everything in binary32 from binary32 hyperparameters."""
    with np.errstate(all="ignore"):
        one, lr = np.float32(1), np.float32(round_to_binary32(h.lr))
        bias_correction1 = one - np.float32(cuda_powf(round_to_binary32(h.beta1), step))
        bias_correction2 = one - np.float32(cuda_powf(round_to_binary32(h.beta2), step))
        return _assemble(
            h,
            w=1 - round_to_binary32(h.beta1),
            c=1 - round_to_binary32(h.beta2),
            root=float(np.sqrt(bias_correction2)),
            eps=h.eps,
            step=float(-(lr / bias_correction1)),
            shrink=1 - h.lr * h.weight_decay,
        )


def _by_tensors(h: Hyperparameters, step: float, power: _POWER) -> Scalars[float]:
    """The capturable branch: a number divided by a tensor is its reciprocal times the number."""
    with np.errstate(all="ignore"):
        one, lr = np.float32(1), np.float32(round_to_binary32(h.lr))
        bias_correction1 = one - np.float32(power(round_to_binary32(h.beta1), step))
        bias_correction2 = one - np.float32(power(round_to_binary32(h.beta2), step))
        step_size = lr / bias_correction1 if h.lr_is_tensor else one / bias_correction1 * lr
        return _assemble(
            h,
            w=1 - (round_to_binary32(h.beta1) if h.betas_are_tensors else h.beta1),
            c=1 - (round_to_binary32(h.beta2) if h.betas_are_tensors else h.beta2),
            root=float(np.sqrt(bias_correction2) * -step_size),
            eps=float(one / -step_size * np.float32(h.eps)),
            step=float(-step_size),
            shrink=_shrink(h),
        )


def _by_lists_of_tensors(h: Hyperparameters, step: float, power: _POWER) -> Scalars[float]:
    """The capturable branch of `_multi_tensor_adam`: no list of tensors is ever subtracted from a number."""
    if h.betas_are_tensors:
        msg = "betas as tensors are not supported for a capturable or compiled foreach step: its op sequence is another"
        raise UnsupportedError(msg)
    with np.errstate(all="ignore"):
        one, lr = np.float32(1), np.float32(round_to_binary32(h.lr))
        minus_bias_correction1 = np.float32(power(round_to_binary32(h.beta1), step)) - one
        bias_correction2 = -(np.float32(power(round_to_binary32(h.beta2), step)) - one)
        return _assemble(
            h,
            w=1 - h.beta1,
            c=1 - h.beta2,
            root=float(np.sqrt(bias_correction2)),
            eps=h.eps,
            step=float(one / (minus_bias_correction1 / lr)),
            shrink=_shrink(h),
        )


def _as_compiled(h: Hyperparameters, scalars: Scalars[float], *, foreach: bool) -> Scalars[float]:
    """What inductor computes of the interpolation before it writes code: in doubles, where betas are numbers."""
    if h.betas_are_tensors:
        return scalars
    if (1 - h.beta1 < _HALF) != (scalars.w < _HALF):
        msg = (
            f"betas[0] {h.beta1!r} is 1/2 in binary32 and not in double precision: a compiled step then writes the "
            "interpolation from the other end than all else, which is not supported"
        )
        raise UnsupportedError(msg)
    # The list form takes the weight as a binary32 tensor, the single form as a number.
    if foreach:
        return scalars
    w = 1 - h.beta1
    return scalars._replace(w_minus_one=round_to_binary32(w - 1), one_minus_w=round_to_binary32(1 - w))


def _shrink(h: Hyperparameters) -> Number:
    """What decoupled decay multiplies with; in binary32 from the product on where lr is a tensor."""
    lr: Number = torch.tensor(h.lr, dtype=torch.float32) if h.lr_is_tensor else h.lr
    return 1 - lr * h.weight_decay


def _assemble(
    h: Hyperparameters, *, w: Number, c: Number, root: Number, eps: float, step: Number, shrink: Number
) -> Scalars[float]:
    """Round each constant to binary32, and derive what the interpolation from the other end needs."""
    weight = round_to_binary32(float(w))
    return Scalars(
        w=weight,
        c=round_to_binary32(float(c)),
        beta1=round_to_binary32(h.beta1),
        beta2=round_to_binary32(h.beta2),
        root=round_to_binary32(float(root)),
        eps=round_to_binary32(eps),
        step=round_to_binary32(float(step)),
        w_minus_one=round_to_binary32(weight - 1),
        one_minus_w=round_to_binary32(1 - weight),
        shrink=round_to_binary32(float(shrink)),
        decay_product=round_to_binary32(round_to_binary32(h.lr) * round_to_binary32(h.weight_decay)),
        weight_decay=round_to_binary32(h.weight_decay),
    )


def c_library_powf(base: float, exponent: float) -> float:
    """The C library's `powf`: a named primitive of compiled steps, called as a black box."""
    return float(_powf()(base, exponent))


@cache
def _powf() -> Callable[[float, float], float]:
    library = ctypes.util.find_library("m")
    if library is None:
        msg = "this machine has no C mathematics library, whose powf compiled steps call"
        raise PlatformError(msg)
    powf = ctypes.CDLL(library).powf
    powf.restype, powf.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_float]
    result: Callable[[float, float], float] = powf
    return result
