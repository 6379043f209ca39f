"""The decision for every coordinate, against enumeration, at exact equality, and through torch's own optimizer.

The enumeration here shares the op model with the search, and nothing else: no bound, no cell, no slack.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import (
    PATHS,
    Case,
    Setting,
    describe,
    pairs,
    repeated,
    sampled_worst,
    settings,
    trained_pairs,
)
from torch import Tensor

from guarded_moments.oracle.exhaustive import CompiledTrajectories
from guarded_moments.oracle.worst_case import Decisions, Verdict, decide, decision, largest_deviation
from guarded_moments.oracle.worst_case.supremum import settle, worst_cases
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.floats import from_bits, hex_of
from guarded_moments.reference.guard import signed_cells
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States, slack_of
from guarded_moments.reference.guard.signed_cells import Uncleared, uncleared
from guarded_moments.reference.implementations import capability_of_this_machine
from guarded_moments.reference.op_models import OpModel

INF = math.inf


class Worst(NamedTuple):
    """The largest deviation over an enumeration; (n,)."""

    deviation: Tensor
    gradient: Tensor


def enumerated(case: Case, model: OpModel, states: States, first: Tensor, count: int) -> Worst:
    """Over `count` neighbouring magnitudes of each coordinate, from the one with bits `first`, both signs."""
    trajectories, block = case.trajectories(model), max(1, (1 << 18) // len(states.m))
    deviation, gradient = torch.full((len(first),), -1.0, dtype=torch.float64), torch.zeros(len(first))
    for begin in range(0, count, block):
        steps = torch.arange(begin, min(begin + block, count), dtype=torch.int32).unsqueeze(1)
        magnitude = (first.to(torch.int32) + steps).view(torch.float32)
        g = torch.cat([magnitude, -magnitude])
        values, row = trajectories.deviations(repeated(states, len(g)), g.reshape(-1)).reshape(g.shape).max(dim=0)
        gradient = torch.where(values > deviation, g.gather(0, row.unsqueeze(0)).squeeze(0), gradient)
        deviation = torch.maximum(deviation, values)
    return Worst(deviation, gradient)


def exact_deviation(case: Case, model: OpModel, states: States, index: int, g: float) -> Fraction:
    """The distance of both updates of one coordinate, on NumPy and as a rational."""
    op = NumpyBinary32()
    update, constants = make_update(op, model, case.options), Scalars(*(op.constant(x) for x in case.scalars))
    m, v, m_hat, v_hat = (moment[index : index + 1].numpy() for moment in states)
    gradient = np.array([g], dtype=np.float32)
    native, recovered = (update(*state, gradient, constants) for state in ((m, v), (m_hat, v_hat)))
    return abs(Fraction(float(recovered[0])) - Fraction(float(native[0])))


def wrong_witnesses(
    case: Case, constants: GuardConstants[float], model: OpModel, states: States, found: Decisions
) -> list[str]:
    """The UNSAFE coordinates whose witness is outside the bound or does not violate."""
    wrong = []
    for i in (found.verdict == Verdict.UNSAFE).nonzero().flatten().tolist():
        g = float(found.witness[i])
        deviation = exact_deviation(case, model, states, i, g)
        inside = abs(g) <= constants.gradient_bound
        if not (inside and deviation > Fraction(constants.threshold)):
            wrong.append(f"{model.name} {case.scalars}: {describe(states, i)} at {hex_of(g)}: {float(deviation)!r}")
    return wrong


def with_threshold(case: Case, threshold: float) -> GuardConstants[float]:
    return case.constants._replace(threshold=threshold)


def peaked(count: int, rng: np.random.Generator) -> States:
    """Pairs whose deviation peaks where the denominator bends: nothing like it far away, as with a plateau."""
    scale = 2.0 ** rng.uniform(-20, -4, count)
    m, v = 0.05 * scale * rng.standard_normal(count), scale**2
    m_hat, v_hat = m * (1 + 0.05 * rng.uniform(-1, 1, count)), v * (1 + rng.uniform(0.3, 0.6, count))
    return States(*(torch.from_numpy(x).float() for x in (m, v, m_hat, v_hat)))


def median(values: Tensor) -> float:
    return float(values.median())


@pytest.mark.parametrize("last", [1, 7, 300])
def test_a_tiny_bound_is_decided_as_by_enumeration(last: int, rng: np.random.Generator, budget: int) -> None:
    """Every gradient up to the `last` subnormal, at thresholds of all sizes, at exact equality and one unit below."""
    few = budget == 1 and last > 7  # the longest takes half a minute on every path
    for setting in settings(rng, 4 if few else len(PATHS) * budget):
        case = replace(setting, bound=from_bits(last)).case()
        states = pairs(60, rng)
        for model in case.models:
            trajectories = case.trajectories(model)
            worst = enumerated(case, model, states, torch.zeros(60), last + 1).deviation
            for threshold in (median(worst), case.constants.threshold):
                constants = with_threshold(case, threshold)
                found = decide(constants, trajectories, states)
                assert (found.verdict == Verdict.UNSAFE).tolist() == (worst > threshold).tolist()
                assert not bool((found.verdict == Verdict.UNDECIDED).any())
                assert wrong_witnesses(case, constants, model, states, found) == []
            for i in range(4):
                one, exact = states.select(torch.tensor([i])), float(worst[i])
                at = decide(with_threshold(case, exact), trajectories, one)
                assert int(at.verdict) == Verdict.SAFE, f"{model.name} {case.scalars}: {describe(states, i)}"
                if exact > 0:
                    constants = with_threshold(case, math.nextafter(exact, 0))
                    below = decide(constants, trajectories, one)
                    assert int(below.verdict) == Verdict.UNSAFE, f"{model.name} {case.scalars}: {describe(states, i)}"
                    assert float(below.deviation) == exact


def peak(case: Case, model: OpModel, states: States) -> Worst:
    """The largest deviation among all binary32 within a percent of where the real one peaks."""
    at = enclose(case.constants, states, relative_gap=1e-9).gradient.abs().float()
    return enumerated(case, model, states, (0.99 * at).view(torch.int32), 1 << 18)


@pytest.mark.parametrize("path", PATHS)
def test_at_exact_equality_it_is_safe_and_one_unit_below_unsafe(
    path: str, rng: np.random.Generator, budget: int
) -> None:
    """Of every second path one claim, in turn; with `--oracle` of each both, and more coordinates."""
    if budget == 1 and PATHS.index(path) % 2:
        pytest.skip("every second path; --oracle runs them all")
    claims = (((0.9, 0.999), 400.0, INF), ((0.5, 0.9), 10.0, 1.0))
    for betas, step, bound in claims if budget > 1 else [claims[PATHS.index(path) // 2 % 2]]:
        case = Setting(betas=betas, step=step, bound=bound, implementation=path).case()
        states = peaked(budget, rng)
        for model in case.models:
            worst, trajectories = peak(case, model, states), case.trajectories(model)
            for i in range(len(states.m)):
                one, exact = states.select(torch.tensor([i])), float(worst.deviation[i])
                at = decide(with_threshold(case, exact), trajectories, one)
                where = f"{model.name} {case.scalars}: {describe(states, i)}, threshold {exact.hex()}"
                assert int(at.verdict) == Verdict.SAFE, where
                constants = with_threshold(case, math.nextafter(float(worst.deviation[i]), 0))
                below = decide(constants, trajectories, one)
                assert int(below.verdict) == Verdict.UNSAFE, where
                assert wrong_witnesses(case, constants, model, one, below) == [], where


def test_verdicts_agree_with_sampling(rng: np.random.Generator, budget: int) -> None:
    """On wild states: what a sample refutes is UNSAFE, each witness violates, and nothing is left undecided."""
    seen = dict.fromkeys(Verdict, 0)
    for setting in settings(rng, len(PATHS) * budget):
        case = setting.case()
        states = States(*(torch.cat(x) for x in zip(pairs(50, rng), trained_pairs(50, rng), strict=True)))
        for model in case.models:
            worst, _ = sampled_worst(case, states, 40, (model,))
            for threshold in (case.constants.threshold, 1.01 * median(worst[worst > 0])):
                constants = with_threshold(case, threshold)
                # Where rounding alone may exceed the threshold, every gradient would have to be asked about.
                decidable = (slack_of(constants, states) < 0.01 * threshold).nonzero().flatten()
                chosen = states.select(decidable)
                found = decide(constants, case.trajectories(model), chosen)
                refuted = worst[decidable] > threshold
                missed = (refuted & (found.verdict != Verdict.UNSAFE)).nonzero().flatten().tolist()
                assert [f"{model.name} {case.scalars}: {describe(chosen, i)}" for i in missed] == []
                assert wrong_witnesses(case, constants, model, chosen, found) == []
                for verdict in Verdict:
                    seen[verdict] += int((found.verdict == verdict).sum())
    assert seen[Verdict.UNDECIDED] == 0
    assert min(seen[Verdict.SAFE], seen[Verdict.UNSAFE]) > 300


def test_a_search_that_allows_a_percent_too_much_is_noticed(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the check at exact equality sees a search that drops too much."""

    def generous(constants: GuardConstants[float], states: States, shortest: int) -> Uncleared:
        return uncleared(constants._replace(threshold=1.01 * constants.threshold), states, shortest)

    case = Setting(step=400.0, bound=INF).case()
    states = peaked(4, rng)
    worst = peak(case, case.implementation.body, states)
    monkeypatch.setattr(decision, "uncleared", generous)
    verdicts = []
    for i in range(4):
        constants = with_threshold(case, math.nextafter(float(worst.deviation[i]), 0))
        verdicts.append(int(decide(constants, case.trajectories(), states.select(torch.tensor([i]))).verdict))
    assert Verdict.SAFE in verdicts


def test_the_same_state_twice_is_safe_at_once(rng: np.random.Generator) -> None:
    case = Setting(tolerance=1e-30).case()
    some = pairs(500, rng)
    states = States(some.m, some.v, some.m, some.v)

    assert not bool(decide(case.constants, case.trajectories(), states).verdict.any())


@pytest.mark.parametrize("v", [0.0, 1e-45, 1e-38])
def test_states_whose_second_moment_vanishes(v: float, rng: np.random.Generator, budget: int) -> None:
    """Where `v` is zero or subnormal the denominator is little more than eps; a quarter of the paths, or all."""
    for path in PATHS if budget > 1 else PATHS[::4]:
        case = Setting(implementation=path, step=400.0).case()
        m = torch.from_numpy(rng.standard_normal(100) * 10.0 ** rng.uniform(-13, -8, 100)).float()
        second = torch.full((100,), v)
        hats = m * (1 + 0.1 * torch.from_numpy(rng.uniform(-1, 1, 100)).float()), second + from_bits(1)
        states = States(m, second, *hats)
        for model in case.models:
            worst, _ = sampled_worst(case, states, 100, (model,))
            found = decide(case.constants, case.trajectories(model), states)
            assert not bool((found.verdict == Verdict.UNDECIDED).any())
            assert not bool(((worst > case.constants.threshold) & (found.verdict == Verdict.SAFE)).any())
            assert wrong_witnesses(case, case.constants, model, states, found) == []


def test_out_of_budget_is_undecided_and_never_safe(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Setting(step=400.0, bound=INF).case()
    states = trained_pairs(300, rng, off=0.03)
    whole = decide(case.constants, case.trajectories(), states).verdict
    for name, value in (("MAX_ROUNDS", 0), ("MAX_ROUNDS", 1), ("MAX_CELLS", 0), ("MAX_CELLS", 5)):
        with monkeypatch.context() as patch:
            for module in (signed_cells, decision):
                patch.setattr(module, name, value)
            cut = decide(case.constants, case.trajectories(), states).verdict
        assert bool(((cut == whole) | (cut == Verdict.UNDECIDED)).all())
        if value == 0:
            assert bool((cut == Verdict.UNDECIDED).any())
    cut = decide(case.constants, case.trajectories(), states, max_enumerated=0).verdict
    assert bool(((cut == whole) | (cut == Verdict.UNDECIDED)).all())


def test_where_rounding_alone_may_decide_the_budget_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit in the last place of `m` at `v = 0`: safe, and only 2**31 gradients could tell."""
    monkeypatch.setattr(decision, "MAX_CELLS", 1 << 12)
    case = Setting(step=1.0, bound=1e-3).case()
    states = States(*(torch.tensor([from_bits(bits)]) for bits in (0x37953DBC, 0, 0x37953DBD, 0)))

    found = decide(case.constants, case.trajectories(), states)

    assert int(found.verdict) == Verdict.UNDECIDED


@pytest.mark.parametrize("compiled", [False, True])
def test_a_coordinate_outside_the_domain_has_its_own_verdict_and_disturbs_no_other(*, compiled: bool) -> None:
    """NaN and negative `v` violate, the same number twice is safe, huge moments are unknown unless a probe tells."""
    case = Setting(step=10.0).case()
    safe = (1e-4, 1e-6, 1e-4 * (1 + 1e-6), 1e-6)
    columns = [safe, (math.nan, 1e-6, 1e-4, 1e-6), (1e-4, 1e-6, 1e-4, -1e-6), (1e30, 1e-6, 1e30, 1e-6), safe]
    columns += [(1e30, 1e-6, 1.5e30, 1e-6), (1e-4, 1e32, 1e-4, 1.1e32), (-0.0, 0.0, 0.0, -0.0)]
    states = States(*(torch.tensor(moment) for moment in zip(*columns, strict=True)))

    found = decide(case.constants, case.trajectories(), states, compiled=compiled)

    expected = [Verdict.SAFE, Verdict.UNSAFE, Verdict.UNSAFE, Verdict.SAFE, Verdict.SAFE]
    assert found.verdict.tolist() == [*expected, Verdict.UNSAFE, Verdict.UNDECIDED, Verdict.SAFE]
    assert found.deviation[1:3].tolist() == [INF, INF]


def test_a_neighbour_that_exhausts_its_budget_changes_no_other_verdict(rng: np.random.Generator) -> None:
    """The coordinate of the next test among others: only it stays undecided."""
    case = Setting(step=1.0, bound=1e-3).case()
    some = trained_pairs(50, rng, off=0.03)
    hard = States(*(torch.tensor([from_bits(bits)]) for bits in (0x37953DBC, 0, 0x37953DBD, 0)))
    alone = decide(case.constants, case.trajectories(), some).verdict

    mixed = States(*(torch.cat(pair) for pair in zip(some, hard, strict=True)))
    found = decide(case.constants, case.trajectories(), mixed, max_enumerated=1 << 14)

    assert int(found.verdict[-1]) == Verdict.UNDECIDED
    undecided_alone = decide(case.constants, case.trajectories(), some, max_enumerated=1 << 14).verdict
    assert found.verdict[:-1].tolist() == undecided_alone.tolist()
    assert int((alone == Verdict.UNDECIDED).sum()) == 0


def test_what_the_decision_leaves_open_the_exact_worst_case_settles(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = peaked(2, rng)
    compiled = CompiledTrajectories(case.implementation.body, case.options, case.scalars)
    exact = worst_cases(case.constants, compiled, states).deviation
    for threshold, verdict in (
        (float(exact.max()), Verdict.SAFE),
        (math.nextafter(float(exact.min()), 0), Verdict.UNSAFE),
    ):
        constants = with_threshold(case, threshold)
        decisions = Decisions(
            torch.full((2,), Verdict.UNDECIDED, dtype=torch.int8), torch.zeros(2), torch.zeros(2).double()
        )
        settle(constants, lambda: compiled, states, decisions, at_most=1)
        assert decisions.verdict.tolist() == [verdict, Verdict.UNDECIDED]
        assert torch.equal(decisions.deviation[:1], exact[:1])


def test_blocks_do_not_change_a_verdict(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Setting(betas=(0.9, 0.95), step=10.0).case()
    states = trained_pairs(700, rng, off=0.03)
    whole = decide(case.constants, case.trajectories(), states)

    monkeypatch.setattr(decision, "BLOCK", 64)
    monkeypatch.setattr(decision, "_ENUMERATION_BLOCK", 2048)
    pieces = decide(case.constants, case.trajectories(), states)

    assert torch.equal(whole.verdict, pieces.verdict)
    assert 0 < int(whole.verdict.sum()) < 700


def test_no_coordinates() -> None:
    case = Setting().case()

    found = decide(case.constants, case.trajectories(), States(*[torch.empty(0)] * 4))

    assert [len(part) for part in found] == [0, 0, 0]


def test_the_compiled_search_contradicts_no_verdict_and_leaves_no_more_open(
    rng: np.random.Generator, budget: int
) -> None:
    for setting in settings(rng, len(PATHS) * budget if budget > 1 else 3):
        case = setting.case()
        for states in (pairs(20, rng), trained_pairs(40, rng, off=0.03)):
            model = case.models[-1]
            found = decide(case.constants, case.trajectories(model), states, compiled=True)
            without = decide(case.constants, case.trajectories(model), states)
            is_open = found.verdict == Verdict.UNDECIDED
            assert not bool((is_open & (without.verdict != Verdict.UNDECIDED)).any())
            assert bool(((found.verdict == without.verdict) | (without.verdict == Verdict.UNDECIDED)).all())
            assert wrong_witnesses(case, case.constants, model, states, found) == []


@pytest.mark.parametrize("compiled", [False, True])
def test_the_largest_deviation_is_found_confirmed_and_bounded(
    rng: np.random.Generator, budget: int, *, compiled: bool
) -> None:
    for setting in settings(rng, len(PATHS) * budget):
        case = setting.case()
        for states in (pairs(30, rng), trained_pairs(30, rng)):
            for model in case.models:
                found = largest_deviation(case.constants, case.trajectories(model), states, compiled=compiled)
                worst, _ = sampled_worst(case, states, 100, (model,))
                most = float(worst.max())
                assert found.coordinate is not None
                assert abs(found.gradient) <= case.constants.gradient_bound
                assert Fraction(found.deviation) >= exact_deviation(
                    case, model, states, found.coordinate, found.gradient
                )
                assert most <= found.upper
                assert found.deviation <= found.upper
                slack = float(slack_of(case.constants, states).max())
                assert found.deviation >= most * (1 - 1e-3) - slack


def test_only_a_larger_deviation_than_the_known_one_is_named(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = trained_pairs(100, rng)
    first = largest_deviation(case.constants, case.trajectories(), states)

    again = largest_deviation(case.constants, case.trajectories(), states, known=2 * first.upper)
    assert again.coordinate is None
    assert again.deviation == 2 * first.upper <= again.upper
    none = largest_deviation(case.constants, case.trajectories(), States(*[torch.empty(0)] * 4))
    assert none.coordinate is None
    assert none.upper == 0


def torch_updates(setting: Setting, m: Tensor, v: Tensor, g: Tensor, size: int) -> Tensor:
    """What `torch.optim.AdamW` adds to parameters that are zero, without decay; tensors of `size` elements."""
    pieces = [moment.clone().split(size) for moment in (m, v, g)]
    parameters = [torch.nn.Parameter(torch.zeros(len(piece))) for piece in pieces[0]]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=setting.lr,
        betas=setting.betas,
        eps=setting.eps,
        weight_decay=0.0,
        fused=setting.implementation.endswith("fused"),
    )
    for parameter, first, second, gradient in zip(parameters, *pieces, strict=True):
        parameter.grad = gradient
        optimizer.state[parameter] = {"step": torch.tensor(setting.step - 1), "exp_avg": first, "exp_avg_sq": second}
    optimizer.step()
    return torch.cat([parameter.detach() for parameter in parameters])


@pytest.fixture(scope="module")
def kernels() -> str:
    try:
        return capability_of_this_machine()
    except PlatformError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("path", ["single", "fused"])
@pytest.mark.parametrize("index", [0, 1], ids=["body", "tail"])
def test_witnesses_violate_in_torch_itself(
    kernels: str, path: str, index: int, rng: np.random.Generator, budget: int
) -> None:
    """Tensors of 64 elements are all body, of 7 all tail."""
    count, size = 448 * budget, (64, 7)[index]
    violations = 0
    for betas, step, bound in (((0.9, 0.999), 400.0, 1.0), ((0.9, 0.95), 1.0, INF), ((0.4, 0.99), 10.0, 1e-3)):
        setting = Setting(betas, step, bound, implementation=f"torch-2.13-cpu-{kernels}/{path}")
        case = setting.case()
        trajectories = case.trajectories(case.models[index])
        some = States(*(torch.cat(x) for x in zip(pairs(count, rng), trained_pairs(count, rng), strict=True)))
        decidable = (slack_of(case.constants, some) < 0.01 * case.constants.threshold).nonzero().flatten()
        states = some.select(decidable).slice(0, count)
        assert len(states.m) == count

        found = decide(case.constants, trajectories, states)

        native = torch_updates(setting, states.m, states.v, found.witness, size).double()
        recovered = torch_updates(setting, states.m_hat, states.v_hat, found.witness, size).double()
        expected_native, expected_recovered = trajectories.updates(states, found.witness)
        assert torch.equal(native, expected_native)
        assert torch.equal(recovered, expected_recovered)
        unsafe = found.verdict == Verdict.UNSAFE
        confirmed = (recovered - native).abs() > case.constants.threshold
        assert [describe(states, i) for i in (unsafe & ~confirmed).nonzero().flatten().tolist()] == []
        violations += int(unsafe.sum())
    assert violations > 100
