"""L2 decay and maximize: the claim is about what enters the moments, and the real optimizer keeps it with both."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from guarded_moments.oracle.audit import audit
from guarded_moments.reference.checkpoint import compress, recover

TOLERANCE, BOUND, LR = 0.01, 1.0, 1e-3
OPTIONS: dict[str, dict[str, Any]] = {
    "L2 decay": {"weight_decay": 0.5},
    "maximize": {"maximize": True},
    "both": {"weight_decay": 0.5, "maximize": True},
    "both, foreach": {"weight_decay": 0.5, "maximize": True, "foreach": True},
    "both, fused": {"weight_decay": 0.5, "maximize": True, "fused": True},
}
NUMEL = 203  # no multiple of a vector


def optimizer_of(values: Tensor, **options: Any) -> tuple[nn.Parameter, torch.optim.Adam]:  # noqa: ANN401 - of Adam
    parameter = nn.Parameter(values.clone())
    return parameter, torch.optim.Adam([parameter], lr=LR, **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_first_update_is_within_the_tolerance_for_every_gradient_that_enters_within_the_bound(
    options: dict[str, Any], budget: int
) -> None:
    generator = torch.Generator().manual_seed(5)
    parameter, optimizer = optimizer_of(torch.randn(NUMEL, generator=generator), **options)
    for _ in range(20):
        parameter.grad = torch.randn(NUMEL, generator=generator) * torch.logspace(-6, -1, NUMEL)
        optimizer.step()
    native = copy.deepcopy(optimizer.state_dict())
    state = compress(native, tolerance=TOLERANCE, grad_bound=BOUND)
    assert [tensor.numel for tensor in state.tensors] == [NUMEL], "nothing is kept whole"
    assert state.escapes < NUMEL / 2
    assert audit(state, native).holds
    recovered = recover(state)

    before = parameter.detach().clone()
    sign = -1.0 if options.get("maximize") else 1.0
    largest = 0.0
    for turn in range(24 * budget):
        entering = (2 * torch.rand(NUMEL, generator=generator) - 1) * 10.0 ** -(turn % 12)
        # What enters is `sign*g + weight_decay*p`: the gradient that arrives follows, and may be far above the bound.
        arriving = sign * (entering.double() - options.get("weight_decay", 0.0) * before.double()) * (1 - 1e-6)
        stepped = []
        for state_dict in (native, recovered):
            other, restored = optimizer_of(before, **options)
            restored.load_state_dict(copy.deepcopy(state_dict))
            other.grad = arriving.float()
            restored.step()
            stepped.append(other.detach())
        apart = (stepped[1].double() - stepped[0].double()).abs()
        rounding = 2.0**-23 * torch.maximum(*(value.abs() for value in stepped)).double()
        assert bool((apart <= TOLERANCE * LR + rounding).all()), f"{float((apart - rounding).max()) / LR} lr"
        largest = max(largest, float((apart - rounding).max()) / LR)
    assert largest > TOLERANCE / 20, "the recovered moments are others"
