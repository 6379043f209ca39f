"""A float32 step at 2**24 stays there, in torch and here, and the reports have a line for it."""

import copy
from typing import Any

import pytest
import torch

from guarded_moments.oracle.stuck_steps import stuck_steps
from guarded_moments.reference.checkpoint import GuardedState, compress
from guarded_moments.reference.hyperparameters import next_step


def after_steps(done: float, updates: int = 0, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - torch's keywords
    """The state_dict of an Adam whose counters were set to `done`, after that many updates more."""
    parameters = [torch.nn.Parameter(torch.ones(16)) for _ in range(2)]
    optimizer = torch.optim.Adam(parameters, **options)
    for update in range(1 + updates):
        for parameter in parameters:
            parameter.grad = torch.full((16,), 1e-3)
        optimizer.step()
        if update == 0:
            for state in optimizer.state.values():
                state["step"].fill_(done)
    return copy.deepcopy(optimizer.state_dict())


def compressed(done: float) -> GuardedState:
    return compress(after_steps(done), tolerance=0.01, grad_bound=1.0)


@pytest.mark.parametrize("done", [0.0, 7.0, 2.0**24 - 2, 2.0**24 - 1, 2.0**24])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["single", "foreach", "fused"])
def test_the_next_step_of_a_tensor_is_torchs(options: dict[str, Any], done: float) -> None:
    after = after_steps(done, updates=1, **options)["state"][0]["step"]
    assert float(after) == next_step(torch.tensor(done), "here")


def test_a_stuck_step_is_said_once_for_all_its_tensors() -> None:
    (line,) = stuck_steps(compressed(2.0**24))
    assert line.startswith("step      2 tensors stuck at step 16,777,216: ")


@pytest.mark.parametrize("done", [1.0, 2.0**24 - 1])
def test_a_step_that_grows_is_not_mentioned(done: float) -> None:
    assert stuck_steps(compressed(done)) == []


def test_the_claim_at_a_stuck_step_is_about_that_step() -> None:
    assert {tensor.next_step for tensor in compressed(2.0**24).tensors} == {2.0**24}
