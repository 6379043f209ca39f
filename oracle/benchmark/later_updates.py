"""How far apart two runs are after the first update, under one shared sequence of drawn gradients.

Claimed: each deviation is attained by these gradients in the named op model.  Not claimed: any bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from guarded_moments.reference.checkpoint import GuardedState, parameters_of
from guarded_moments.reference.checkpoint.encoding import scalars_of
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.whole_tensor import WholeTensor

UPDATES = 10
_SEED = 20150715


def later_updates(state: GuardedState, native: Mapping[str, Any]) -> list[float]:
    """The largest deviation at each update, in learning rates, over all coordinates.

    The gradients of a coordinate are normally distributed with the size that its second moment says.
    """
    generator = torch.Generator().manual_seed(_SEED)
    parameters = {(parameter.place, parameter.key): parameter for parameter in parameters_of(native)}
    largest = [0.0] * UPDATES
    for tensor in state.tensors:
        parameter = parameters[tensor.place, tensor.key]
        implementation = implementation_named(tensor.implementation)
        runs = [(in_memory_order(parameter.m), in_memory_order(parameter.v)), tensor.decode()]
        size, zero = runs[0][1].sqrt(), torch.zeros(tensor.numel)
        for update in range(UPDATES):
            number = parameter.next_step + update
            scalars = scalars_of(replace(parameter, next_step=number), implementation, tensor.lr)
            step = WholeTensor(implementation, parameter.hyperparameters.options, scalars)
            g = size * torch.randn(tensor.numel, generator=generator)
            results = [step(zero, g, m, v) for m, v in runs]
            runs = [(result.m, result.v) for result in results]
            apart = float((results[0].p - results[1].p).abs().nan_to_num(0).max()) / tensor.lr
            largest[update] = max(largest[update], apart)
    return largest
