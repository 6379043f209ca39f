"""The pieces of the search, each by itself."""

import numpy as np
import pytest
import torch
from tests.strategies import wild_states, wild_tensor
from torch import Tensor

from guarded_moments.oracle.identify.candidates import (
    Quantity,
    _left_alone,
    evaluate,
    largest_candidates,
    plain_candidates,
    step_of,
)
from guarded_moments.oracle.identify.experiment import Trial
from guarded_moments.oracle.identify.inputs import pool, scan_roots
from guarded_moments.oracle.identify.regions import covering, describe, regions_as_seen
from guarded_moments.oracle.identify.rules import RULES, Given, Rule
from guarded_moments.oracle.identify.separate import agree, bits, classes_of, separating, ulps, ulps_apart
from guarded_moments.oracle.identify.setting import PLAIN, Setting
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.op_models import Correction
from guarded_moments.reference.scalars import Constants


def test_moments_left_alone_keep_every_bit(rng: np.random.Generator) -> None:
    states = wild_states(20_000, rng)
    m, v = wild_tensor(20_000, rng), wild_tensor(20_000, rng)
    setting = Setting()
    for candidate in (plain_candidates(Quantity.PARAMETER)[0], largest_candidates()[0]):
        result = _left_alone(candidate.model, candidate.options(setting), candidate.scalars(setting), states, m, v)
        assert agree(result.m, m).all()
        assert agree(result.v, v).all()


def test_a_parameter_from_the_moments_left_behind_is_that_of_the_whole_step(rng: np.random.Generator) -> None:
    """For every candidate, so that identifying one quantity after the other loses nothing."""
    states = wild_states(3_000, rng)
    for setting in PLAIN[1:5:3]:
        for candidate in plain_candidates(Quantity.PARAMETER)[::7]:
            whole = step_of(candidate.model, candidate.options(setting), candidate.scalars(setting), states)
            given = evaluate(Quantity.PARAMETER, candidate, setting, states, torch.stack(list(whole)))
            assert agree(given, whole.p).all()


def test_separating_columns_tell_apart_what_any_column_does(rng: np.random.Generator) -> None:
    for _ in range(30):
        rows, columns = rng.integers(1, 30), rng.integers(1, 40)
        tables = [torch.from_numpy(rng.integers(0, 2, size=(rows, columns), dtype=np.int32)) for _ in range(2)]
        chosen = separating(tables, 1)
        for table in tables:
            assert int(classes_of(table).max()) == int(classes_of(table[:, chosen]).max())


def test_redundant_columns_are_disjoint_and_each_set_separates() -> None:
    table = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 0]], dtype=torch.int32)
    assert sorted(separating([table], 2).tolist()) == [1, 2]
    assert sorted(separating([table], 3).tolist()) == [1, 2], "there are no more"
    assert separating([table[:1]], 2).tolist() == [0], "nothing to tell apart still needs an input"


def test_nan_is_nan_and_zeros_have_signs() -> None:
    quiet = torch.tensor([0x7FC00000, 0x7F800001, -0x400000, 0], dtype=torch.int32).view(torch.float32)
    assert agree(quiet, torch.tensor([float("nan"), float("nan"), float("nan"), -0.0])).tolist() == [
        True,
        True,
        True,
        False,
    ]
    assert bits(quiet)[:3].unique().numel() == 1


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (1.0, 1.0, 0),
        (1.0, 1 + 2**-23, 1),
        (0.0, -0.0, 1),
        (2.0**-149, -(2.0**-149), 3),
        (float("nan"), 1.0, -1),
        (float("nan"), float("nan"), 0),
        (float("inf"), 3.4028234663852886e38, 1),
    ],
)
def test_ulps_count_the_values_between(a: float, b: float, apart: int) -> None:
    assert ulps_apart(a, b) == ulps_apart(b, a) == apart
    pair = torch.tensor([a], dtype=torch.float32), torch.tensor([b], dtype=torch.float32)
    assert ulps(*pair).tolist() == [apart]


def mask_of(sizes: tuple[int, ...], rule: str) -> Tensor:
    kinds = {
        "tail": lambda i, n: i >= n - n % 8,
        "body": lambda i, n: i < n - n % 8,
        "slots": lambda i, n: i % 4 == 0,
        "first": lambda i, n: i < 3,
    }
    return torch.tensor([kinds[rule](i, n) for n in sizes for i in range(n)])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("tail", "the last numel % 8"),
        ("body", "all but the last numel % 8"),
        ("slots", "elements i with i % 4 in [0]"),
        ("first", "0..2 of 7; 0..2 of 28; 0..2 of 45"),
    ],
)
def test_regions_are_described_by_a_rule_or_by_their_ranges(rule: str, words: str) -> None:
    sizes = (7, 28, 45)
    assert describe(mask_of(sizes, rule), sizes) == words
    assert describe(torch.ones(80, dtype=torch.bool), sizes) == "all elements"


def test_regions_cover_all_positions_or_there_are_none() -> None:
    alive = torch.tensor([[True, True, False, False], [False, False, True, False]])
    assert covering(alive) is None, "the last position has no candidate"
    alive[1, 3] = True
    masks = covering(alive)
    assert masks is not None
    assert torch.stack(masks).sum(dim=0).tolist() == [1, 1, 1, 1]
    trial = Trial(plain_candidates(Quantity.SECOND_MOMENT)[:2], alive, torch.zeros(2), torch.zeros(2))
    assert [region.alive for region in regions_as_seen(trial, (4,))] == [(0,), (1,)]


def test_the_settings_tell_all_rules_apart_that_any_step_could() -> None:
    """What remains together has the same constants by definition: tensors rounded before they are used."""
    told: dict[tuple[object, ...], list[Rule]] = {}
    for rule in RULES:
        scalars = [rule.scalars(setting, Correction.DIVIDE) for setting in PLAIN]
        told.setdefault(tuple((s.w, s.c, s.root, s.eps, s.step) for s in scalars), []).append(rule)
    together = [{(rule.constants, rule.betas) for rule in rules} for rules in told.values() if len(rules) > 1]
    assert sorted(together, key=str) == [
        {(Constants.CAPTURABLE_FOREACH, Given.NUMBER)},  # it divides by lr in binary32 whatever lr is
        {(Constants.COMPILED_FOREACH, Given.NUMBER)},
        {(Constants.HOST, Given.TENSOR)},  # with tensor betas an lr rounded first is rounded anyway
    ]


def test_a_factor_in_place_of_a_divisor_is_formed_before_it_is_rounded() -> None:
    setting = Setting(step=1)
    root = (1 - 0.999**1.0) ** 0.5
    expected = float(torch.tensor(1 / root, dtype=torch.float64).float())
    assert RULES[0].scalars(setting, Correction.MULTIPLY).root == expected
    assert RULES[0].scalars(setting, Correction.DIVIDE).root != expected


def test_the_pool_holds_values_where_the_platforms_root_errs() -> None:
    """As second moments that come out of the step as those very values."""
    roots = scan_roots(1)
    if not roots.errors:
        pytest.skip("torch.sqrt is the correctly rounded root on this machine")
    setting = Setting()
    rows = pool(4096, setting, 3)
    after = step_of(
        plain_candidates(Quantity.PARAMETER)[0].model,
        plain_candidates(Quantity.PARAMETER)[0].options(setting),
        RULES[0].scalars(setting, Correction.DIVIDE),
        rows,
    ).v
    op = TorchBinary32()
    assert int((op.platform_sqrt(after) != op.sqrt(after)).sum()) >= 64


def test_a_pool_is_the_same_again_and_another_for_another_seed() -> None:
    first, again, other = (pool(512, Setting(), seed) for seed in (5, 5, 6))
    assert agree(first, again).all()
    assert not agree(first, other).all()
    assert first.shape == (5, 512)
    assert first.dtype is torch.float32
