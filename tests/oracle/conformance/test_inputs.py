"""What backends are tried on reaches where it should."""

import math

import pytest
import torch

from guarded_moments.oracle.conformance import Adapted, ReferenceBackend, Trial
from guarded_moments.oracle.conformance.encode import near_thresholds, nearest_codes
from guarded_moments.oracle.conformance.inputs import GRIDS, NANS, SPECIAL, any_bits, same_bits, same_numbers
from guarded_moments.oracle.conformance.pairs import accepted_pairs, joined
from guarded_moments.oracle.conformance.scenes import SCENES, Scene
from guarded_moments.reference.arithmetic import TorchBinary64
from guarded_moments.reference.codecs.tables import thresholds
from guarded_moments.reference.guard import closed_form_guard, in_domain
from guarded_moments.reference.guard.closed_form import bound_inflation, lifted, make_deviation_bound

SEED = 1


def generator(purpose: str) -> torch.Generator:
    return Trial(Adapted(ReferenceBackend()), SEED).generator(purpose)


def test_special_values_are_distinct_bits_of_every_class() -> None:
    assert len(set(SPECIAL.view(torch.int32).tolist())) == len(SPECIAL)
    assert bool(NANS.isnan().all())
    quiet = (NANS.view(torch.int32) & (1 << 22)) != 0
    assert set(quiet.tolist()) == {True, False}
    assert 0 < float(SPECIAL[SPECIAL > 0].min()) < 2.0**-148
    assert {math.copysign(1, zero) for zero in SPECIAL[SPECIAL == 0].tolist()} == {1.0, -1.0}


def test_any_bits_has_every_class() -> None:
    values = any_bits(generator("bits"), 3000)
    subnormal = (values != 0) & (values.abs() < 2.0**-126)
    for kind in (values.isnan(), values.isinf(), values == 0, subnormal, values < 0, values > 1e30):
        assert int(kind.sum()) > 30


def test_equality_of_bits_and_of_numbers() -> None:
    a, b = torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])
    assert same_bits(a, b).tolist() == same_numbers(a, b).tolist() == [False, True]
    assert same_numbers(NANS[:1], NANS[1:2]).tolist() == [True]
    assert same_bits(NANS[:1], NANS[1:2]).tolist() == [False]


def test_some_thresholds_are_ties_and_all_are_straddled() -> None:
    ties = 0
    for grids in GRIDS:
        for moment, grid in zip("mv", grids, strict=True):
            near = near_thresholds(grid).reshape(grid.levels - 1, -1)
            codes = nearest_codes(moment, grid, near.flatten()).reshape(near.shape)
            assert bool((codes[:, 0] < codes[:, -1]).all())
            ties += sum(math.log2(threshold).is_integer() for threshold in thresholds(grid).tolist())
    assert ties > 100


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.op_model}-{scene.step:g}")
def test_pairs_reach_the_edge_of_the_guard_in_every_direction(scene: Scene) -> None:
    pairs = joined(
        *accepted_pairs(generator(str(scene)), lambda *states: closed_form_guard(scene.constants, *states), 100)
    )
    assert bool(closed_form_guard(scene.constants, *pairs).all())
    assert bool((in_domain(pairs.m, pairs.v) & in_domain(pairs.m_hat, pairs.v_hat)).all())

    m, v, m_hat, v_hat = (moment.double() for moment in pairs)
    bound = make_deviation_bound(TorchBinary64())(lifted(scene.constants), m, v, m_hat, v_hat) * bound_inflation()
    same_m, same_v = pairs.m == pairs.m_hat, pairs.v == pairs.v_hat
    directions = [same_m & ~same_v, same_m & (pairs.m == 0), ~same_m & ~same_v, same_v & ~same_m]
    if scene.betas[0] == 0:
        directions.pop()  # the first moment is the gradient alone
    for direction in directions:
        used = bound[direction] / scene.constants.threshold
        assert len(used) > 20
        assert float(used.max()) > 0.999
