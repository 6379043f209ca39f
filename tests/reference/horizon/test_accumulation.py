"""The rounding slack of later updates: binary32 runs against exact ones, update by update."""

from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
from tests.reference.horizon.runs import (
    FUSED,
    PRECISION,
    ExactState,
    constants_of,
    gamma,
    moments_of,
    number,
    run_of,
    runs,
    sequences,
    updates_of,
)
from tests.strategies import Array

from guarded_moments.reference.floats import BINARY32, hex_of
from guarded_moments.reference.guard import rounding_slack
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.horizon import Run
from guarded_moments.reference.op_models import OpModel

U = float(BINARY32.unit_roundoff)


def states(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """What training leaves, a zero or subnormal second moment, a first one too large for its second."""
    kind = rng.integers(6, size=count)
    v = (2.0 ** rng.uniform(-60, 4, count)).astype(np.float32)
    v = np.where(kind == 0, np.float32(0), v)
    v = np.where(kind == 1, (2.0 ** rng.uniform(-149, -126, count)).astype(np.float32), v)
    m = np.sqrt(v) * rng.uniform(-8, 8, count) * np.where(kind == 2, 1e3, 1)
    m = np.where(kind == 0, 2.0 ** rng.uniform(-149, -20, count), m)
    return m.astype(np.float32), v


def slack_at(k: GuardConstants[float], m: float, v: float, y: mpmath.mpf) -> mpmath.mpf:
    """What the constants allow one update to be off by, at what stands for a sequence."""
    reciprocal = 1 / (mpmath.sqrt(v + mpmath.mpf(k.curvature) * y * y) + k.eps)
    proportional = (k.slack_moment * abs(m) + k.slack_reciprocal) * reciprocal
    return k.step * (proportional + k.slack_gradient * y * mpmath.sqrt(k.curvature) * reciprocal) + k.slack_floor


def used(run: Run, model: OpModel, updates: int, rng: np.random.Generator, count: int) -> Iterator[tuple[float, str]]:
    """Of each coordinate at each update, the share of the slack that rounding took, and the bits."""
    m, v = states(rng, count)
    gradients = sequences(rng, run, v, updates)
    constants = constants_of(run, updates)
    with mpmath.workprec(PRECISION):
        exact, computed = ExactState.of(m, v), (m, v)
        for update in range(1, updates + 1):
            real, g = run.real(update), gradients[update - 1]
            got = updates_of(run, model, update, *computed, g)
            computed = moments_of(run, model, update)(*computed, g)
            exact = exact.after(real, g)
            y = gamma(real, gradients[:update])
            for i, wanted in enumerate(exact.update(real)):
                allowed = slack_at(constants[update - 1], float(m[i]), float(v[i]), y[i])
                share = abs(mpmath.mpf(float(got[i])) - wanted) / allowed
                bits = ", ".join(f"{name} = {hex_of(float(x[i]))}" for name, x in (("m", m), ("v", v), ("update", got)))
                drawn = [hex_of(float(x)) for x in gradients[:update, i]]
                yield float(share), f"{model.name}, update {update} of {run}: {bits}, g = {drawn}"


def test_no_run_is_further_from_the_exact_one_than_the_slack(rng: np.random.Generator, budget: int) -> None:
    most = 0.0
    for run in runs(rng, 24):
        for model in run.implementation.models:
            for share, bits in used(run, model, 6, rng, 12 * budget):
                assert share <= 1, bits
                most = max(most, share)
    assert most > 0.3, "a slack that nothing comes near to is not tested"


def test_nor_over_many_updates(rng: np.random.Generator, budget: int) -> None:
    run = run_of(implementation="torch-2.13-cpu-avx2/single")
    shares = [share for share, _ in used(run, run.implementation.body, 40 * budget, rng, 12)]
    assert 0.01 < max(shares) <= 1


def test_a_slack_cut_to_a_tenth_is_exceeded(rng: np.random.Generator) -> None:
    exceeded = 0
    for run in runs(rng, 6):
        exceeded += sum(share > 0.1 for share, _ in used(run, run.implementation.body, 5, rng, 12))
    assert exceeded > 5


#: Of a pair of runs from a state with `|m|/sqrt(v)` at its largest, in learning rates, late in training.
LARGEST_RATIO = 7.2703


@pytest.mark.parametrize(("updates", "most"), [(1, 9.2e-6), (10, 3.1e-5), (100, 1.42e-4)])
def test_the_slack_grows_by_what_each_update_loses(updates: int, most: float) -> None:
    """First order: one and a half units of roundoff an update for `v`, sixty in all for `m`."""
    run = run_of(step=1e5, implementation=FUSED)
    k = constants_of(run, updates)[-1]
    pair = 2 * (k.step * (k.slack_moment * LARGEST_RATIO + k.slack_gradient) + k.slack_floor) / run.lr
    assert 0.97 * most < pair <= most


def test_the_first_update_has_the_slack_of_a_first_update() -> None:
    for name in (FUSED, "torch-2.13-cpu-avx2/single"):
        run = run_of(implementation=name)
        (k,) = constants_of(run, 1)
        known = [
            rounding_slack(m, run.hyperparameters.options, run.scalars(1), BINARY32) for m in run.implementation.models
        ]
        real = run.real(1)
        scale = number(1 / real.beta2) ** 0.5
        for slack in known:
            assert slack is not None
        gradient = max(float(slack.gradient) for slack in known if slack is not None)
        moment = max(float(slack.moment) for slack in known if slack is not None)
        assert k.slack_moment == pytest.approx(moment * float(scale), rel=1e-12)
        assert k.step * k.slack_gradient == pytest.approx(float(real.step) * gradient, rel=1e-12)
