"""The exact supremum: equal to exhaustion, attained in torch itself, and an answer for every odd coordinate."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import PATHS, Case, Setting, describe, pairs, settings, trained_pairs

from guarded_moments.oracle import intervals
from guarded_moments.oracle.exhaustive import CompiledTrajectories, Coordinate, exhaust
from guarded_moments.oracle.worst_case import Certainty
from guarded_moments.oracle.worst_case.supremum import WorstCases, worst_case, worst_cases
from guarded_moments.reference.errors import InvalidClaimError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard.search import States, largest_gradient

INF, NAN = math.inf, math.nan


def compiled(case: Case) -> CompiledTrajectories:
    return CompiledTrajectories(case.implementation.body, case.options, case.scalars)


def coordinate(states: States, index: int) -> Coordinate:
    return Coordinate(*(float(moment[index]) for moment in states))


@pytest.mark.timeout(3600)  # for `--oracle`
def test_it_equals_exhaustion(rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    """Every binary32 gradient with `|g| <= G`: of one coordinate in the ordinary run, of 53 in the full one."""
    settings_of = [(Setting(step=400.0), 1)]
    if budget > 1:
        settings_of += [(Setting(bound=1.0, step=step), 13) for step in (1.0, 10.0, 400.0, 1e5)]
    for setting, count in settings_of:
        case = setting.case()
        trajectories = compiled(case)
        states = trained_pairs(count, rng, off=0.3)
        found = worst_cases(case.constants, trajectories, states, max_enumerated=1 << 32)
        for i in range(count):
            every = exhaust(trajectories, coordinate(states, i), largest_gradient(case.constants))
            assert (float(found.deviation[i]), int(found.certainty[i])) == (every.deviation, Certainty.EXACT), (
                f"{case.scalars}: {describe(states, i)}: searched {float(found.deviation[i]).hex()} at "
                f"{hex_of(float(found.gradient[i]))}, exhausted {every.deviation.hex()} at {hex_of(every.gradient)}"
            )
            compared["worst_case: gradients of coordinates equal to exhaustion"] += every.evaluated
            compared["worst_case: coordinates equal to exhaustion"] += 1


def replayed(case: Setting, states: States, i: int, gradient: float) -> float:
    """The deviation of one coordinate's update in `torch.optim.AdamW` itself, in units of the parameter."""
    updates = []
    for m, v in ((states.m[i], states.v[i]), (states.m_hat[i], states.v_hat[i])):
        # The first of 64 is in the body of the vector loop; a parameter of 0 takes the update unrounded.
        parameter = torch.nn.Parameter(torch.zeros(64))
        optimizer = torch.optim.AdamW(
            [parameter], lr=case.lr, betas=case.betas, eps=case.eps, weight_decay=0.0, foreach=False
        )
        optimizer.state[parameter] = {
            "step": torch.tensor(case.step - 1),
            "exp_avg": torch.full((64,), float(m)),
            "exp_avg_sq": torch.full((64,), float(v)),
        }
        parameter.grad = torch.full((64,), gradient)
        optimizer.step()
        updates.append(float(parameter.detach()[0]))
    return abs(updates[1] - updates[0])


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="the op model is that of torch's AVX2 build"
)
def test_every_witness_attains_its_deviation_in_torch(
    rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    for step in (1.0, 10.0, 400.0, 1e5):
        setting = Setting(step=step)
        case = setting.case()
        states = trained_pairs(8 * budget, rng)
        found = worst_cases(case.constants, compiled(case), states)
        for i in range(len(states.m)):
            again = replayed(setting, states, i, float(found.gradient[i]))
            assert again == float(found.deviation[i]), f"{describe(states, i)} at {hex_of(float(found.gradient[i]))}"
            compared["worst_case: witnesses replayed through torch.optim.AdamW"] += 1


@pytest.mark.timeout(3600)  # for `--oracle`
def test_the_certified_intervals_enclose_it(rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    """Ten coordinates of each kind of claim; 2,000 in the full run."""
    for setting in settings(rng, 2 if budget == 1 else 200, unusual=False):
        case = setting.case()
        states = trained_pairs(10, rng, off=0.3)
        found = worst_cases(case.constants, compiled(case), states)
        for i, numbers in product(range(10), intervals.Numbers):
            certified = intervals.enclose(
                case.implementation.body,
                case.options,
                case.scalars,
                *coordinate(states, i),
                found.gradient_bound,
                numbers=numbers,
            )
            deviation = float(found.deviation[i])
            text = (
                f"{case.scalars}: {describe(states, i)}: searched {deviation!r} at {hex_of(float(found.gradient[i]))}, "
                f"certified with {numbers.value} {float(certified.lower)!r} to {float(certified.upper)!r}"
            )
            assert deviation <= certified.upper, text
            if found.certainty[i] == Certainty.EXACT:
                assert certified.lower <= deviation, text
            compared[f"worst_case: coordinates enclosed by intervals of {numbers.value} numbers"] += 1


def test_where_both_states_are_one_nothing_deviates(rng: np.random.Generator) -> None:
    case = Setting().case()
    some = pairs(20, rng)
    found = worst_cases(case.constants, compiled(case), States(some.m, some.v, some.m, some.v))
    assert not bool(found.deviation.any())
    assert not bool(found.upper.any())
    assert set(found.certainty.tolist()) == {Certainty.EXACT}


def asked(states: list[tuple[float, float, float, float]], **given: object) -> WorstCases:
    moments = (torch.tensor(column, dtype=torch.float32) for column in zip(*states, strict=True))
    arguments = {
        "hyperparameters": Setting().hyperparameters,
        "step": 10.0,
        "gradient_bound": 1.0,
        "op_model": Setting().implementation,
    }
    return worst_case(*moments, **(arguments | given))  # type: ignore[arg-type]  # the arguments of the function


def test_odd_coordinates_get_their_own_answer_and_disturb_no_other() -> None:
    fine = (1e-4, 1e-6, 1.01e-4, 1.02e-6)
    odd = [
        (NAN, 1e-6, 1e-4, 1e-6),
        (1e-4, NAN, 1e-4, 1e-6),
        (1e-4, 1e-6, 1e-4, -1e-6),
        (INF, 1e-6, 1e-4, 1e-6),
        (1e30, 1e-6, 1.1e30, 1e-6),
    ]
    found = asked([fine, *odd, fine])
    (alone,) = zip(*(column.tolist() for column in asked([fine])[:5]), strict=True)
    for place in (0, 6):
        assert tuple(column[place].item() for column in found[:5]) == alone
    assert found.deviation[1:5].tolist() == [INF] * 4
    assert found.certainty.tolist() == [0, 0, 0, 0, 0, Certainty.OUTSIDE, 0]
    assert found.upper[5] == INF
    assert 0 < float(found.deviation[5]) < INF


def test_minus_zero_is_zero() -> None:
    minus, plus = asked([(-0.0, -0.0, 1e-5, 1e-9)]), asked([(0.0, 0.0, 1e-5, 1e-9)])
    assert minus.deviation.tolist() == plus.deviation.tolist()
    assert minus.certainty.tolist() == [Certainty.EXACT]


def test_without_budget_the_answer_is_an_enclosure() -> None:
    state = (1e-4, 1e-6, 1.01e-4, 1.02e-6)
    exact, open_ended = asked([state]), asked([state], max_enumerated=100)
    assert open_ended.certainty.tolist() == [Certainty.ENCLOSED]
    assert float(open_ended.deviation) <= float(exact.deviation) <= float(open_ended.upper)
    assert float(exact.upper) == float(exact.deviation)


def test_an_infinite_bound_means_up_to_the_overflow_limit() -> None:
    found = asked([(1e-4, 1e-6, 1.01e-4, 1.02e-6)], gradient_bound=INF)
    assert 1e18 < found.gradient_bound < INF
    assert math.isfinite(float(found.deviation))


@pytest.mark.parametrize(
    ("given", "text"), [({"gradient_bound": 1e30}, "overflow limit"), ({"index": 7}, "none with index 7")]
)
def test_what_is_wrong_with_the_question_is_said_before_any_work(given: dict[str, float], text: str) -> None:
    with pytest.raises(InvalidClaimError, match=text):
        asked([(1e-4, 1e-6, 1.01e-4, 1.02e-6)], **given)


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    asked([(1e-4, 1e-6, 1.01e-4, 1.02e-6)] * 3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_every_op_model_has_an_exact_worst_case(rng: np.random.Generator, budget: int) -> None:
    """All of them in the full run, a third in the ordinary one: each is compiled."""
    for setting in list(settings(rng, len(PATHS), unusual=False))[:: 1 if budget > 1 else 3]:
        case = setting.case()
        states = trained_pairs(2, rng, off=0.3)
        found = worst_cases(case.constants, compiled(case), states)
        sampled = case.trajectories().deviations(states, found.gradient)
        assert sampled.tolist() == found.deviation.tolist(), setting.implementation
