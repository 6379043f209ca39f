"""Cells hold their gradients, and an enclosure is as close as asked, or said not to be."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from tests.oracle.intervals.settings import (
    GAP,
    LR,
    SETTINGS,
    Coordinate,
    Setting,
    Tensor,
    coordinate,
    described,
    deviation_of,
    tensor_of,
)

from guarded_moments.oracle.intervals import (
    Enclosure,
    Numbers,
    enclose,
    enclosure,
)
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import bits_of, from_bits
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.op_models import SquareRoot


def test_every_gradient_of_a_cell_lies_within_its_enclosure(
    tensor: Tensor, rng: np.random.Generator, budget: int
) -> None:
    limit = bits_of(tensor.constants.gradient_bound) - 1
    for _ in range(4 * budget):
        state = coordinate(rng)
        start = bits_of(abs(state.m) * 10.0 ** rng.uniform(-3, 3)) if rng.random() < 0.7 else rng.integers(limit)
        low = min(int(start), limit)
        high = min(low + int(2.0 ** rng.uniform(0, 30)), limit)  # from neighbours to many binades
        within = np.unique(np.linspace(low, high, min(high - low + 1, 4096)).astype(np.int32))
        sign = float(rng.choice([1.0, -1.0]))
        gradients = torch.from_numpy(within).view(torch.float32) * sign
        states = States(*(moment.expand(len(gradients)) for moment in state.states))
        deviations = tensor.trajectories.deviations(states, gradients)
        cells = [
            deviation_of(tensor, state, numbers).over(from_bits(low) * sign, from_bits(high) * sign)
            for numbers in Numbers
        ]
        for (least, most), at in product(cells, (int(deviations.argmax()), int(deviations.argmin()))):
            deviation, g = float(deviations[at]), float(gradients[at])
            assert 0 <= least <= deviation <= most, described(tensor, state, g, deviation=deviation, cell=(least, most))


@pytest.mark.parametrize(
    "setting",
    [setting for setting in SETTINGS if tensor_of(setting).model.square_root is SquareRoot.CORRECT],
    ids=str,
)
def test_a_single_gradient_gives_the_bits_of_torchs_arithmetic(
    setting: Setting, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    tensor = tensor_of(setting)
    for _ in range(10 * budget):
        state = coordinate(rng)
        g = from_bits(int(rng.integers(bits_of(tensor.constants.gradient_bound))) | int(rng.integers(2)) << 31)
        least, most = deviation_of(tensor, state).at(g)
        deviation = float(tensor.trajectories.deviations(state.states, torch.tensor([g])))
        assert most == deviation, described(tensor, state, g, torch=deviation, fractions=(least, most))
        assert math.nextafter(least, math.inf) >= most
        compared["deviations with exact rationals"] += 1


ORDINARY = SETTINGS[0]
NATIVE = (from_bits(0x3A83126F), from_bits(0x358637BD))  # 1e-3, 1e-6
RECOVERED = (from_bits(0x3A84B5DD), from_bits(0x3588DDEE))  # about 1.3 and 2 % off


def enclosed(native: tuple[float, float], recovered: tuple[float, float], bound: float, **options: float) -> Enclosure:
    tensor = tensor_of(ORDINARY)
    gap, cells = options.get("relative_gap", GAP), int(options.get("max_cells", 20_000))
    return enclose(
        tensor.model, tensor.options, tensor.scalars, *native, *recovered, bound, relative_gap=gap, max_cells=cells
    )


def test_the_same_state_has_no_deviation() -> None:
    found = enclosed(NATIVE, NATIVE, 1.0)
    assert (found.lower, found.upper) == (0.0, 0.0)


def test_too_few_cells_leave_the_enclosure_wide_and_right() -> None:
    coarse, fine = enclosed(NATIVE, RECOVERED, 1.0, max_cells=1), enclosed(NATIVE, RECOVERED, 1.0)
    assert coarse.cells < fine.cells
    assert coarse.lower <= fine.upper < coarse.upper
    assert fine.upper <= 1.012 * fine.lower


def test_a_smaller_gap_is_a_closer_enclosure() -> None:
    coarse, fine = (enclosed(NATIVE, RECOVERED, 1.0, relative_gap=gap) for gap in (0.2, 0.005))
    assert fine.upper < coarse.upper
    assert fine.upper <= 1.007 * fine.lower


def test_with_no_gap_left_the_ends_are_the_worst_bits_of_all_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosure, "_NOISES", 0)
    tensor = tensor_of(Setting("torch-2.13-cpu-avx2/fused", 0, 0.9, 400, 1.0))
    state = Coordinate(*NATIVE, *RECOVERED)
    bound = from_bits(0x3A000000)  # below where the deviation is largest: it grows up to there
    found = enclose(tensor.model, tensor.options, tensor.scalars, *state, bound, relative_gap=0.0, max_cells=10**5)
    last = torch.arange(bits_of(bound) - 2**20, bits_of(bound) + 1, dtype=torch.int32).view(torch.float32)
    every = torch.cat([last, -last])
    worst = tensor.trajectories.deviations(States(*(moment.expand(len(every)) for moment in state.states)), every).max()
    assert found.upper == float(worst)
    assert math.nextafter(found.lower, math.inf) >= found.upper
    assert tensor.trajectories.deviations(state.states, torch.tensor([found.gradient])) == worst


def test_a_gradient_that_may_overflow_is_not_bounded() -> None:
    found = enclosed(NATIVE, RECOVERED, math.inf)
    assert found.upper == math.inf
    assert 0 < found.lower < LR


@pytest.mark.parametrize("bound", [1e-3, 0.1, 1.0, 1e-45, 2.0**-149, 2.0**-126])
def test_no_gradient_exceeds_the_bound(bound: float) -> None:
    found = enclosed(NATIVE, RECOVERED, bound)
    assert abs(found.gradient) <= bound
    assert from_bits(bits_of(found.gradient)) == found.gradient


@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan, 0.1, 1e300])
def test_moments_that_are_none_are_refused(wrong: float) -> None:
    with pytest.raises(UnsupportedError, match="finite binary32 moments"):
        enclosed((NATIVE[0], wrong), RECOVERED, 1.0)


def test_without_python_flint_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "guarded_moments.oracle.intervals.balls")
    monkeypatch.setitem(sys.modules, "flint", None)
    tensor = tensor_of(ORDINARY)
    with pytest.raises(UnsupportedError, match=re.escape("pip install 'guarded-moments[flint]'")):
        enclose(tensor.model, tensor.options, tensor.scalars, *NATIVE, *RECOVERED, 1.0, numbers=Numbers.ARB)
