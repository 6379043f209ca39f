"""Why moments of amsgrad are kept exactly: the exact guard accepts pairs that deviate by more there.

Without amsgrad an error of `m` and one of `v` may cancel, and the exact guard counts on it.  With it the root is of
`max(vmax, v')`: where `vmax` is above both, the error of `v` has no effect, and that of `m` stands alone.
"""

from typing import Any

import pytest
import torch
from tests.reference.checkpoint.states import GROUP, OP_MODEL
from torch import Tensor, nn

from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.guard import closed_form_guard, exact_guard, guard_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import capability_of_this_machine, implementation_named

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
