"""The guard of later updates: against adversaries that choose whole sequences of gradients, bit for bit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.reference.horizon.runs import constants_of, run_of, sequences
from torch import Tensor

from guarded_moments.oracle.later_updates import deviations, worst_sequence
from guarded_moments.reference.claim import LARGEST_GRADIENT, Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.errors import InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import closed_form_guard, exact_guard
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.horizon import LaterGuard, Run, deviation_of_every, later_guard, unbounded_constants
from guarded_moments.reference.horizon.afterwards import drift, later_factor
from guarded_moments.reference.horizon.constants import over

TOLERANCE = 0.01


def states_of(rng: np.random.Generator, count: int, off: float = 0.01) -> States:
    """What training leaves, and what a codec with an error of about `off` would make of it."""
    v = (2.0 ** rng.uniform(-50, 0, count)).astype(np.float32)
    m = (np.sqrt(v) * rng.uniform(-4, 4, count)).astype(np.float32)
    m_hat = (m + np.sqrt(v) * off * rng.uniform(-1, 1, count)).astype(np.float32)
    v_hat = (v * (1 + 4 * off * rng.uniform(-1, 1, count))).astype(np.float32)
    return States(*(torch.from_numpy(moment) for moment in (m, v, m_hat, v_hat)))


def claim_of(run: Run, horizon: Horizon, bound: float = math.inf) -> Claim:
    return Claim(Tolerance(TOLERANCE), GradientBound(bound), run.implementation.name, horizon)


def guard_of(run: Run, horizon: Horizon, bound: float = math.inf) -> LaterGuard:
    guard = later_guard(claim_of(run, horizon, bound), run)
    assert guard is not None
    return guard


def described(states: States, i: int) -> str:
    return ", ".join(f"{name} = {hex_of(float(moment[i]))}" for name, moment in states._asdict().items())


@pytest.mark.parametrize("kind", ["closed", "exact"])
@pytest.mark.parametrize("updates", [2, 7, 30])
def test_no_sequence_tried_violates_what_is_accepted(
    updates: int, kind: str, rng: np.random.Generator, budget: int
) -> None:
    run, exact = run_of(), kind == "exact"
    states = states_of(rng, 300 * budget, 0.006)
    accepted = guard_of(run, Horizon(updates)).accepts(states, exact=exact)
    assert 0.05 < float(accepted.double().mean()) < 0.95
    kept, constants, closest = states.select(accepted), constants_of(run, updates), 0.0
    for update in range(2, updates + 1, max(1, updates // 5)):
        worst = worst_sequence(constants[update - 1], run, kept, update, LARGEST_GRADIENT)
        drawn = torch.from_numpy(sequences(rng, run, kept.v.numpy(), update))
        for gradients in (worst, drawn):
            found = deviations(run, run.implementation.body, kept, gradients)[-1] / run.lr
            closest = max(closest, float(found.max()))
            i = int(found.argmax())
            assert float(found[i]) <= TOLERANCE, (described(kept, i), [hex_of(float(g)) for g in gradients[:, i]])
    assert closest > (0.9 if exact else 0.5) * TOLERANCE, "no sequence comes near the tolerance"


def test_what_the_search_rejects_is_violated_or_within_the_slack_of_it(rng: np.random.Generator) -> None:
    run, updates = run_of(), 10
    states, constants = states_of(rng, 400, 0.004), constants_of(run, updates)
    first = exact_guard(constants[0], *states)
    rejected = first & ~guard_of(run, Horizon(updates)).accepts(states, exact=True)
    left = states.select(rejected)
    worst = torch.zeros(len(left.m), dtype=torch.float64)
    for update in range(2, updates + 1):
        gradients = worst_sequence(constants[update - 1], run, left, update, LARGEST_GRADIENT)
        found = deviations(run, run.implementation.body, left, gradients)[-1] / run.lr
        worst = torch.maximum(worst, found)
    assert len(worst) > 40
    assert float(worst.min()) > 0.995 * TOLERANCE


def test_every_update_is_within_the_bound_on_all(rng: np.random.Generator) -> None:
    for betas in ((0.9, 0.999), (0.9, 0.95), (0.0, 0.99)):
        run = run_of(betas, step=300.0)
        states = states_of(rng, 200)
        bound = deviation_of_every(unbounded_constants(run), states)
        constants, closest = constants_of(run, 30), 0.0
        for update in (1, 2, 5, 10, 30):
            gradients = worst_sequence(constants[update - 1], run, states, update, LARGEST_GRADIENT)
            found = deviations(run, run.implementation.body, states, gradients)[-1]
            assert bool((found <= bound + 1e-4 * run.lr).all()), "binary32 rounds, by far less than that"
            closest = max(closest, float((found / bound).max()))
        assert closest > 0.4, betas


def test_all_updates_accept_no_more_than_a_number_of_them(rng: np.random.Generator) -> None:
    run, states = run_of(), states_of(rng, 500, 0.002)
    accepted = {horizon: guard_of(run, Horizon(horizon)).accepts(states, exact=True) for horizon in (2, 10, 50, None)}
    for longer, shorter in ((10, 2), (50, 10), (None, 50)):
        assert not bool((accepted[longer] & ~accepted[shorter]).any()), (longer, shorter)
    assert bool(accepted[None].any())


def test_the_factor_bounds_later_updates_of_whatever_is_accepted_once(rng: np.random.Generator) -> None:
    run, states = run_of(), states_of(rng, 400, 0.004)
    constants, factor = constants_of(run, 40), later_factor(run)
    assert later_factor(run_of(step=1e6)) == pytest.approx(2.299, abs=1e-3)
    kept = states.select(closed_form_guard(constants[0], *states))
    most = 0.0
    for update in (2, 10, 40):
        gradients = worst_sequence(constants[update - 1], run, kept, update, LARGEST_GRADIENT)
        found = deviations(run, run.implementation.body, kept, gradients)[-1] / run.lr
        most = max(most, float(found.max()))
    assert TOLERANCE < most <= factor * TOLERANCE


def test_the_drift_bounds_the_sum_of_deviations(rng: np.random.Generator) -> None:
    run, states, updates = run_of(), states_of(rng, 200), 100
    bound, closest = drift(run, states, updates), 0.0
    for scale in (0.3, 1.0, 3.0, 10.0):
        for sign in (-1.0, 1.0):
            moving, total = states, torch.zeros(200, dtype=torch.float64)
            for update in range(1, updates + 1):  # gradients as large as the root of v: its error shrinks slowly
                g = (sign * scale * moving.v.sqrt()).float()
                total += deviations(replaced(run, update), run.implementation.body, moving, g.unsqueeze(0))[0]
                moving = after(run, update, moving, g)
            assert bool((total <= bound).all())
            closest = max(closest, float((total / bound).max()))
    assert closest > 0.3


def replaced(run: Run, update: int) -> Run:
    return Run(run.implementation, run.hyperparameters, run.next_step + update - 1, run.lr)


def after(run: Run, update: int, states: States, g: Tensor) -> States:
    from guarded_moments.oracle.trajectories import Trajectories  # noqa: PLC0415 - used here alone

    return Trajectories(run.implementation.body, run.hyperparameters.options, run.scalars(update)).after(states, g)


def test_constants_over_several_updates_bound_each(rng: np.random.Generator) -> None:
    run, states = run_of(), states_of(rng, 500, 0.002)
    constants = constants_of(run, 20)
    together = closed_form_guard(over(constants[4:]), *states)
    assert bool(together.any())
    for each in constants[4:]:
        assert not bool((together & ~closed_form_guard(each, *states)).any())


def test_states_outside_the_domain_are_not_accepted() -> None:
    odd = torch.tensor([math.nan, math.inf, -0.0, 2.0**61])
    v = torch.ones(4)
    for horizon in (Horizon(3), Horizon.ALL):
        guard = guard_of(run_of(), horizon)
        assert not bool(guard.accepts(States(odd, v, odd, v), exact=True).any())
        assert not bool(guard.accepts(States(v, -v, v, -v), exact=True).any())
        assert bool(guard.accepts(States(v, v, v, v), exact=True).all())
        assert guard.accepts(States(*[torch.empty(0)] * 4), exact=True).tolist() == []


@pytest.mark.parametrize(
    ("run", "horizon", "says"),
    [
        (run_of((0.95, 0.9)), Horizon.ALL, "beta1\\*\\*2 is not below beta2"),
        (run_of((0.9, 0.0)), Horizon(2), "a v that remembers"),
        (run_of((0.5, 0.7)), Horizon(1000), "horizon 1000 is too long for betas\\[1\\] 0.7"),
        (run_of(step=2.0**24), Horizon(2), "sticks at 2\\*\\*24"),
        (run_of(eps=0.0), Horizon(2), "eps 0.0 is so small|eps is 0|divide|divisor"),
        (run_of(eps=0.0), Horizon.ALL, "eps is 0"),
    ],
    ids=["growing", "forgetful", "too long", "stuck", "no eps", "no eps for all"],
)
def test_what_no_horizon_covers_is_refused(run: Run, horizon: Horizon, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        later_guard(claim_of(run, horizon), run)


def test_a_finite_bound_above_that_of_sequences_is_refused() -> None:
    run = run_of()
    with pytest.raises(InvalidClaimError, match=r"above 3\.5.*e\+13"):
        later_guard(claim_of(run, Horizon(2), 1e14), run)
    assert later_guard(claim_of(run, Horizon.FIRST, 1e14), run) is None


def test_a_smaller_bound_accepts_no_less(rng: np.random.Generator) -> None:
    run, states = run_of(), states_of(rng, 500, 0.004)
    some = guard_of(run, Horizon(10), 1e-6).accepts(states, exact=True)
    every = guard_of(run, Horizon(10)).accepts(states, exact=True)
    assert int(some.sum()) > int(every.sum())
    assert not bool((every & ~some).any())


@pytest.mark.parametrize("horizon", [Horizon(2), Horizon.ALL])
def test_no_horizon_covers_amsgrad(horizon: Horizon) -> None:
    run = run_of()
    run = replace(run, hyperparameters=replace(run.hyperparameters, amsgrad=True))
    claim = Claim(Tolerance(0.01), GradientBound(math.inf), run.implementation.name, horizon)

    with pytest.raises(UnsupportedError, match="amsgrad"):
        later_guard(claim, run)
    assert later_guard(replace(claim, horizon=Horizon.FIRST), run) is None
