"""One Adam step of a whole tensor: each element by its op model, in blocks that stay in a core's cache.

Claimed: the result is that of `adam.make_step`, element by element; blocks and regions change nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions, StepResult, make_step
from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary32
from guarded_moments.reference.arithmetic.numpy_binary32 import Array
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.implementations import Implementation

#: Elements worked on at a time: the float64 temporaries of an operation just fit half a mebibyte of second-level cache.
BLOCK = 3 << 13


class WholeTensor:
    """The step of one implementation, for contiguous float32 tensors of any size."""

    def __init__(
        self,
        implementation: Implementation,
        options: StepOptions,
        scalars: Scalars[float],
        *,
        device: torch.device | str = "cpu",
        numpy: bool = False,
        threads: int | None = None,
    ) -> None:
        """Fix the op models and the constants.

        Args:
            implementation: which op model each element follows.
            options: per-tensor choices.
            scalars: the kernel's constants.
            device: where the tensors are.
            numpy: compute with NumPy, on CPU, instead of torch.
            threads: intra-op threads of the run, see `Implementation.assign`.
        """
        self._implementation, self._options, self._threads = implementation, options, threads
        self._step = (
            _numpy_step(implementation, options, scalars)
            if numpy
            else _torch_step(implementation, options, scalars, device)
        )

    def __call__(self, p: Tensor, g: Tensor, m: Tensor, v: Tensor, v_max: Tensor | None = None) -> StepResult[Tensor]:
        """The parameter and moments after the step, new tensors of the inputs' shape.

        Args:
            p: parameter, contiguous float32.
            g: its gradient, same shape.
            m: first moment, same shape.
            v: second moment, same shape.
            v_max: largest second moment so far, with amsgrad; otherwise not read.

        Raises:
            UnsupportedError: a tensor is not contiguous: torch's kernels then divide it otherwise into body and tail,
                and its fused ones do not look at strides at all.
        """
        tensors = (p, g, m, v, v if v_max is None else v_max)
        for name, tensor in zip(("p", "g", "m", "v", "v_max"), tensors, strict=True):
            if not tensor.is_contiguous():
                msg = f"{name} is not contiguous (strides {tensor.stride()}), which no op model places"
                raise UnsupportedError(msg)
        before = [tensor.reshape(-1) for tensor in tensors]
        after = StepResult(*(torch.empty_like(before[0]) for _ in range(4)))
        numel = before[0].numel()
        for begin in range(0, numel, BLOCK):
            block = slice(begin, min(begin + BLOCK, numel))
            for whole, part in zip(after, self._step(0, *(tensor[block] for tensor in before)), strict=True):
                whole[block] = part
        if len(self._implementation.models) > 1:
            assigned = self._implementation.assign(numel, self._options, self._threads)
            for index in range(1, len(self._implementation.models)):
                places = (assigned == index).nonzero().flatten().to(before[0].device)
                if len(places):
                    for whole, part in zip(
                        after, self._step(index, *(tensor[places] for tensor in before)), strict=True
                    ):
                        whole[places] = part
        return StepResult(*(tensor.reshape(p.shape) for tensor in after))


#: Steps the elements given by the op model of that index.
_Step = Callable[..., StepResult[Tensor]]


def _torch_step(
    implementation: Implementation, options: StepOptions, scalars: Scalars[float], device: torch.device | str
) -> _Step:
    op = TorchBinary32(device)
    constants: Scalars[Tensor] = Scalars(*(op.constant(value) for value in scalars))
    steps = [make_step(op, model, options) for model in implementation.models]
    return lambda index, *tensors: steps[index](*tensors, constants)


def _numpy_step(implementation: Implementation, options: StepOptions, scalars: Scalars[float]) -> _Step:
    op = NumpyBinary32()
    constants: Scalars[Array] = Scalars(*(op.constant(value) for value in scalars))
    steps = [make_step(op, model, options) for model in implementation.models]

    def step(index: int, *tensors: Tensor) -> StepResult[Tensor]:
        p, g, m, v, v_max = (tensor.numpy() for tensor in tensors)
        result = steps[index](p, g, m, v, v_max, constants)
        return StepResult(*(torch.from_numpy(np.ascontiguousarray(array)) for array in result))

    return step
