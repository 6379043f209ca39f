"""Deciding with amsgrad: safe is what the closed form accepts, unsafe what the op model shows, and unknown the rest."""

import pytest
import torch
from tests.reference.checkpoint.states import GROUP, OP_MODEL
from torch import Tensor

from guarded_moments.oracle.trajectories import AmsgradTrajectories
from guarded_moments.oracle.worst_case import Verdict, decide_with_amsgrad, largest_with_amsgrad
from guarded_moments.reference.adam import Scalars, make_amsgrad_update
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.guard import GuardConstants, closed_form_deviation, guard_constants
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_named

LR, DONE = 1e-3, 999
HYPERPARAMETERS = Hyperparameters.from_param_group({**GROUP, "lr": LR, "amsgrad": True}, "param_groups[0]")
IMPLEMENTATION = implementation_named(OP_MODEL)
SCALARS = IMPLEMENTATION.scalars(HYPERPARAMETERS, DONE + 1)
TRAJECTORIES = AmsgradTrajectories(IMPLEMENTATION.body, HYPERPARAMETERS.options, SCALARS)
#: m, v, and what is recovered: exact, a little off, far off, and off in `v` alone.
STATES = States(
    m=torch.tensor([1e-3, 1e-3, 1e-3, 1e-3]),
    v=torch.tensor([1e-6, 1e-6, 1e-6, 1e-6]),
    m_hat=torch.tensor([1e-3, 1.001e-3, 1.1e-3, 1e-3]),
    v_hat=torch.tensor([1e-6, 1.001e-6, 1.1e-6, 1.1e-6]),
)


def constants(tolerance: float) -> GuardConstants[float]:
    claim = Claim(Tolerance(tolerance), GradientBound(1.0), OP_MODEL)
    return guard_constants(claim, IMPLEMENTATION, HYPERPARAMETERS.options, SCALARS, LR)


def verdicts(tolerance: float, v_max: Tensor) -> list[Verdict]:
    found = decide_with_amsgrad(constants(tolerance), TRAJECTORIES, STATES, v_max)
    return [Verdict(int(one)) for one in found.verdict]


def test_safe_unsafe_and_undecided_are_told_apart() -> None:
    second, large = STATES.v, torch.full((4,), 1e-2)

    assert verdicts(0.01, second) == [Verdict.SAFE, Verdict.SAFE, Verdict.UNSAFE, Verdict.UNSAFE]
    # Where the third moment hides all that is off, no gradient shows anything, and the closed form does not know it.
    assert verdicts(0.01, large) == [Verdict.SAFE, Verdict.SAFE, Verdict.UNDECIDED, Verdict.UNDECIDED]


def test_a_witness_is_one_in_the_op_model() -> None:
    found = decide_with_amsgrad(constants(0.01), TRAJECTORIES, STATES, STATES.v)
    update = make_amsgrad_update(TorchBinary32(), IMPLEMENTATION.body, HYPERPARAMETERS.options)
    scalars = Scalars(*(torch.tensor(value, dtype=torch.float32) for value in SCALARS))
    native = update(STATES.m, STATES.v, STATES.v, found.witness, scalars)
    recovered = update(STATES.m_hat, STATES.v_hat, STATES.v, found.witness, scalars)

    assert torch.equal((recovered.double() - native.double()).abs(), found.deviation)


@pytest.mark.parametrize("third", [float("nan"), float("inf"), -1.0, -0.0, 2.0**101])
def test_a_third_moment_outside_the_domain_is_never_called_safe(third: float) -> None:
    assert Verdict.SAFE not in verdicts(1e9, torch.full((4,), third))


def test_the_largest_is_attained_below_its_bound() -> None:
    held = constants(0.01)
    found = decide_with_amsgrad(held, TRAJECTORIES, STATES, STATES.v)
    worst = largest_with_amsgrad(held, STATES, found)

    assert worst.coordinate is not None
    assert worst.deviation == float(found.deviation.max()) == float(found.deviation[worst.coordinate])
    assert worst.deviation <= worst.upper == float(closed_form_deviation(held, *STATES)[1:].max())
    assert largest_with_amsgrad(held, STATES.slice(0, 1), found._replace(deviation=found.deviation[:1])).upper == 0.0
