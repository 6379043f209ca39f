"""Why the closed form alone guards moments of amsgrad: the exact guard accepts pairs that deviate by more there.

Without amsgrad an error of `m` and one of `v` may cancel, and the exact guard counts on it.  With it the root is of
`max(vmax, v')`: where `vmax` is above both, the error of `v` has no effect, and that of `m` stands alone.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.checkpoint.states import GROUP, OP_MODEL
from torch import Tensor, nn

from guarded_moments.oracle.trajectories import AmsgradTrajectories
from guarded_moments.oracle.worst_case import decide_with_amsgrad
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.guard import closed_form_deviation, closed_form_guard, exact_guard, guard_constants
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import (
    IMPLEMENTATIONS,
    capability_of_this_machine,
    implementation_named,
)

TOLERANCE, LR, DONE = 0.01, 1e-3, 999
#: m, v, and how far both are off: the root grows by as much as m does.
V, RATIO, ERROR = 1e-6, 5.6, 0.0043


def moved(m: float, v: float, v_max: float | None, g: float) -> float:
    """What one step of the real AdamW adds to a parameter of zero, in learning rates."""
    parameter = nn.Parameter(torch.zeros(1))
    amsgrad = v_max is not None
    optimizer = torch.optim.AdamW([parameter], lr=LR, weight_decay=0.0, amsgrad=amsgrad)
    entry: dict[str, Tensor] = {
        "step": torch.tensor(float(DONE)),
        "exp_avg": torch.tensor([m]),
        "exp_avg_sq": torch.tensor([v]),
    }
    if v_max is not None:
        entry["max_exp_avg_sq"] = torch.tensor([v_max])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: entry}})
    parameter.grad = torch.tensor([g])
    optimizer.step()
    return float(parameter.detach()) / LR


@pytest.fixture(scope="module")
def pair() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A native state and a recovered one."""
    v = torch.tensor([V])
    m = RATIO * v.sqrt()
    return m, v, m * (1 + ERROR), v * (1 + 2 * ERROR)


def accepted(pair: tuple[Tensor, ...], guard: Any) -> bool:  # noqa: ANN401 - either guard
    """Whether a guard accepts the recovered state, for every gradient and without amsgrad."""
    hyperparameters = Hyperparameters.from_param_group({**GROUP, "lr": LR, "weight_decay": 0.0}, "param_groups[0]")
    implementation = implementation_named(OP_MODEL)
    claim = Claim(Tolerance(TOLERANCE), GradientBound(float("inf")), OP_MODEL)
    scalars = implementation.scalars(hyperparameters, DONE + 1)
    constants = guard_constants(claim, implementation, hyperparameters.options, scalars, LR)
    return bool(guard(constants, *pair))


def test_the_exact_guard_is_not_sound_for_amsgrad(pair: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    assert accepted(pair, exact_guard)
    assert not accepted(pair, closed_form_guard), "which counts on no cancellation"
    assert capability_of_this_machine()
    m, v, m_hat, v_hat = (float(value) for value in pair)

    for g in (*torch.logspace(-12, 12, 97).tolist(), 0.0):
        for signed in (g, -g):
            apart = abs(moved(m_hat, v_hat, None, signed) - moved(m, v, None, signed))
            assert apart <= TOLERANCE, f"without amsgrad, g = {signed}"
    apart = abs(moved(m_hat, v_hat, v_hat, 0.0) - moved(m, v, v_hat, 0.0))
    assert apart > 1.5 * TOLERANCE, "with amsgrad, the largest v being v_hat in both"


@pytest.mark.parametrize("model", sorted(IMPLEMENTATIONS))
def test_no_update_with_amsgrad_deviates_by_more_than_the_closed_form_says(
    model: str, rng: np.random.Generator, budget: int
) -> None:
    """In the op models, whatever the third moment: below both, between, above both, and wherever `v'` overtakes it."""
    hyperparameters = Hyperparameters.from_param_group({**GROUP, "lr": LR, "weight_decay": 0.0}, "param_groups[0]")
    claim = Claim(Tolerance(TOLERANCE), GradientBound(float("inf")), model)
    implementation = implementation_named(model)
    closest = 0.0
    for done in (1, DONE)[-budget:]:
        scalars = implementation.scalars(hyperparameters, done + 1)
        constants = guard_constants(claim, implementation, hyperparameters.options, scalars, LR)
        states = recovered_pairs(300 * budget, rng)
        bounds = closed_form_deviation(constants, *states)
        for op_model in implementation.models:
            trajectories = AmsgradTrajectories(op_model, hyperparameters.options, scalars)
            for third in (states.v * 0, states.v, (states.v + states.v_hat) / 2, states.v * 3):
                found = decide_with_amsgrad(constants, trajectories, states, third)
                share = found.deviation / bounds
                worst = int(share.argmax())
                assert float(share[worst]) <= 1, [float(x[worst]).hex() for x in (*states, third, found.witness)]
                closest = max(closest, float(share[worst]))
    assert closest > 0.9, "the bound is nearly attained, so that a smaller one would have been caught"


def recovered_pairs(count: int, rng: np.random.Generator) -> States:
    """States of many magnitudes, and others a little off."""
    v = 10.0 ** rng.uniform(-20, -2, count)
    m = np.sqrt(v) * rng.normal(size=count) * 3
    off = [1 + rng.normal(size=count) * 10.0 ** rng.uniform(-5, -1, count) for _ in range(2)]
    numbers = (m, v, m * off[0], v * np.abs(off[1]))
    return States(*(torch.from_numpy(x.astype(np.float32)) for x in numbers))
