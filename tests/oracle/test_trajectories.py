"""Both updates of the op model, their exact distance, and the bound over a cell against every gradient inside."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.guard.cases import PATHS, Setting, describe, pairs, repeated, settings
from tests.strategies import NAN, SPECIAL_BITS, floats_of
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories, _distance_up
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.guard.search import States, largest_gradient
from guarded_moments.reference.op_models import Interpolation

INF = math.inf


def distance(a: float, b: float) -> float:
    (found,) = _distance_up(torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)).tolist()
    return float(found)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_the_distance_is_rounded_up(a: float, b: float) -> None:
    exact = abs(Fraction(a) - Fraction(b))
    found = distance(a, b)

    if math.isinf(found):
        assert exact > Fraction(math.nextafter(INF, 0))
    else:
        assert Fraction(found) >= exact
        assert exact == 0 or Fraction(math.nextafter(found, 0)) < exact, "not the smallest"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (INF, INF, 0.0),
        (-INF, -INF, 0.0),
        (INF, -INF, INF),
        (INF, 1.0, INF),
        (1.0, -INF, INF),
        (math.nan, 1.0, INF),
        (math.nan, math.nan, INF),
        (0.0, -0.0, 0.0),
        (2.0**-1074, -(2.0**-1074), 2.0**-1073),
        (1.0, 2.0**-60, 1.0),
        (1.0, -(2.0**-60), 1.0 + 2.0**-52),
        (-1.0, 2.0**-60, 1.0 + 2.0**-52),
    ],
)
def test_the_distance_at_special_values(a: float, b: float, expected: float) -> None:
    assert distance(a, b) == expected


def test_updates_are_the_same_on_numpy(rng: np.random.Generator) -> None:
    op = NumpyBinary32()
    for setting in settings(rng, 2 * len(PATHS)):
        case = setting.case()
        states = pairs(2000, rng)
        g = (torch.from_numpy(rng.standard_normal(2000)) * 10.0 ** torch.from_numpy(rng.uniform(-12, 2, 2000))).float()
        for model in case.models:
            native, recovered = case.trajectories(model).updates(states, g)
            update = make_update(op, model, case.options)
            constants = Scalars(*(op.constant(value) for value in case.scalars))
            for found, m, v in ((native, states.m, states.v), (recovered, states.m_hat, states.v_hat)):
                expected = update(m.numpy(), v.numpy(), g.numpy(), constants).astype(np.float64)
                assert np.array_equal(found.numpy().view(np.int64), expected.view(np.int64)), model.name


def cell(low: Tensor, floats: int, last: float) -> tuple[Tensor, Tensor]:
    """Cells of so many binary32 from `low`, which is moved so that they fit."""
    end = int(np.float32(last).view(np.int32))
    first = low.view(torch.int32).clamp(max=end - floats + 1)
    return first.view(torch.float32), (first + floats - 1).view(torch.float32)


def test_no_gradient_of_a_cell_deviates_by_more_than_its_bound(rng: np.random.Generator, budget: int) -> None:
    """Every binary32 of cells of 300, of both signs."""
    n, floats, compared = 30, 300, 0
    for setting in settings(rng, 2 * len(PATHS) * budget):
        case = setting.case()
        last = largest_gradient(case.constants)
        states = pairs(n, rng)
        bend = np.sqrt(case.constants.radicand * states.v.numpy().astype(np.float64)) + case.constants.eps
        choices = (
            bend * case.constants.gap_cap * 2.0 ** rng.uniform(-3, 3, n),
            2.0 ** rng.uniform(-149, math.log2(last), n),
            np.abs(states.m.numpy()),  # where g - m cancels
            np.zeros(n),
        )
        starts = np.clip(np.choose(rng.integers(4, size=n), choices), 0, last).astype(np.float32)
        low, high = cell(torch.from_numpy(starts), floats, last)
        inside = (low.view(torch.int32) + torch.arange(floats, dtype=torch.int32).unsqueeze(1)).view(torch.float32)
        g = torch.cat([inside, -inside])
        for model in case.models:
            trajectories = case.trajectories(model)
            upper = torch.maximum(trajectories.upper(states, low, high), trajectories.upper(states, -low, -high))
            deviation = trajectories.deviations(repeated(states, len(g)), g.reshape(-1)).reshape(g.shape)
            wrong = (deviation > upper).any(dim=0).nonzero().flatten().tolist()
            assert [
                f"{model.name} {case.scalars}: {describe(states, i)}, from {float(low[i]).hex()}" for i in wrong
            ] == []
            compared += deviation.numel()
            if not case.options.interpolate_from_end or model.interpolation is Interpolation.FMA_TWICE:
                assert bool(upper.isfinite().all())
            else:
                assert bool((upper == INF).all())
    assert compared > 300_000


def test_a_cell_of_one_gradient_is_bounded_by_its_deviations(rng: np.random.Generator) -> None:
    for setting in settings(rng, len(PATHS)):
        case = setting.case()
        if case.options.interpolate_from_end:
            continue
        states = pairs(500, rng)
        g = torch.from_numpy(10.0 ** rng.uniform(-12, -4, 500)).float()
        trajectories = case.trajectories()
        for signed in (g, -g):
            assert torch.equal(trajectories.upper(states, signed, signed), trajectories.deviations(states, signed))


def test_a_bound_from_one_end_alone_is_exceeded(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the check above sees a wrong bound."""

    def near_only(self: Trajectories, m: Tensor, v: Tensor, near: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self._moments(m, v, near, self._scalars)
        update = self._increment(first, self._root(second), self._scalars)
        return update, update

    monkeypatch.setattr(Trajectories, "_range", near_only)
    with pytest.raises(AssertionError):
        test_no_gradient_of_a_cell_deviates_by_more_than_its_bound(rng, budget=1)


def test_states_outside_the_domain_deviate_infinitely_or_not_at_all() -> None:
    """NaN is no deviation that a threshold could allow; identical infinities are no deviation."""
    trajectories = Setting().case().trajectories()
    odd = torch.from_numpy(floats_of([*SPECIAL_BITS, NAN | 1]))
    m, v, m_hat = (grid.reshape(-1) for grid in torch.meshgrid(odd, odd, odd, indexing="ij"))

    deviation = trajectories.deviations(States(m, v, m_hat, v), torch.ones_like(m))

    assert not bool(deviation.isnan().any())
    assert bool((deviation >= 0).all())
    native, recovered = trajectories.updates(States(m, v, m_hat, v), torch.ones_like(m))
    differ = ~(native == recovered)
    broken = differ & ~(native.isfinite() & recovered.isfinite())
    assert bool((deviation[broken] == INF).all())
    assert bool((deviation[~differ] == 0).all())
