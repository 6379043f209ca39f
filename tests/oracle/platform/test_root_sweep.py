"""The sweep: true of the correct root, and of roots with one fault it says where and how far."""

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.oracle.platform.roots import BLOCKS, INEXACT, correct, moved
from tests.strategies import INFINITY, NAN, SMALLEST_NORMAL, floats_of
from torch import Tensor

from guarded_moments.oracle.platform.exact_root import nearest_root, root_error
from guarded_moments.oracle.platform.root_sweep import (
    BLOCK,
    MARGIN,
    complete_blocks,
    quick_blocks,
    sweep,
    wrong_beyond_finite,
)


def test_the_correct_root_has_half_a_unit_of_error_and_nothing_else() -> None:
    found = sweep(correct, BLOCKS)
    values = np.concatenate([np.arange(first, first + BLOCK, dtype=np.uint32) for first in BLOCKS]).view(np.float32)
    assert (found.inputs, found.below, found.above, found.farthest, found.falls) == (len(BLOCKS) * BLOCK, 0, 0, 0, 0)
    assert found.first_off is None
    assert (found.numpy_off, found.own_off) == (0, 0)
    assert 0.4999 < found.error < 0.5 + 2 * MARGIN
    assert 0.9 < found.relative < 1
    assert found.fingerprint == hashlib.sha256(np.sqrt(values).astype("<f4").tobytes()).hexdigest()


def test_the_counts_are_those_of_a_slow_and_obvious_count() -> None:
    def faulty(values: Tensor) -> Tensor:
        bits = values.view(torch.int32)
        away = torch.where(bits % 5 == 0, -1, torch.where(bits % 7 == 0, 2, 0)) * (bits > 0)
        return (correct(values).view(torch.int32) + away.int()).view(torch.float32)

    found = sweep(faulty, [0x3F800000])
    bits = np.arange(0x3F800000, 0x3F800000 + BLOCK, dtype=np.uint32)
    values = bits.view(np.float32)
    roots = faulty(torch.from_numpy(values)).numpy()
    distance = roots.view(np.int32) - np.sqrt(values).view(np.int32)
    exact = np.sqrt(values.astype(np.longdouble))
    error = np.abs(roots.astype(np.longdouble) - exact)
    assert (found.below, found.above) == (int((distance < 0).sum()), int((distance > 0).sum()))
    assert found.first_off == bits[distance.nonzero()[0][0]]
    assert found.farthest == 2
    assert found.falls == int((np.diff(roots) < 0).sum())
    assert found.error - MARGIN == pytest.approx(float(error.max()) * 2**23, abs=MARGIN)
    assert found.error_at == bits[error.argmax()]
    assert found.relative == pytest.approx(float((error / exact).max()) * 2**24, abs=4 * MARGIN)


@pytest.mark.parametrize("at", [1, SMALLEST_NORMAL - 1, SMALLEST_NORMAL, INEXACT, INFINITY - 1])
@pytest.mark.parametrize("by", [-2, -1, 1, 2])
def test_a_single_root_that_is_off_is_found(at: int, by: int) -> None:
    block = at - at % BLOCK
    found = sweep(moved(at, by), [block])
    assert (found.below, found.above, found.farthest, found.first_off) == (int(by < 0), int(by > 0), abs(by), at)
    low, high = root_error(at, nearest_root(at) + by)
    assert found.error_at == at
    assert low <= Fraction(found.error) <= high + 2 * Fraction(MARGIN)


def test_roots_fall_across_blocks_too() -> None:
    last_of_first = INEXACT + BLOCK - 1
    assert nearest_root(last_of_first) + 2 > nearest_root(last_of_first + 1)
    assert sweep(moved(last_of_first, 2), [INEXACT, INEXACT + BLOCK]).falls == 1
    assert sweep(moved(last_of_first, 2), [INEXACT]).falls == 0


def test_all_finite_inputs_are_in_the_complete_blocks_once() -> None:
    blocks = complete_blocks()
    assert (blocks[0], blocks[-1] + BLOCK, len(blocks) * BLOCK) == (0, INFINITY, INFINITY)
    assert set(np.diff(blocks)) == {BLOCK}


def test_the_quick_blocks_are_what_they_are_said_to_be() -> None:
    blocks = set(quick_blocks())
    assert blocks == set(complete_blocks()[::64]) | {block for block in complete_blocks() if 1 <= value_of(block) < 4}


def value_of(bits: int) -> float:
    return float(floats_of(bits))


BEYOND: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "infinity": ("infinity", lambda x, y: torch.where(x == math.inf, 3.4e38, y)),
    "one NaN": ("nan", lambda x, y: torch.where(x.view(torch.int32) == NAN + 5, 1.0, y)),
    "plus for minus zero": ("minus_zero", lambda x, y: y.abs()),
    "the magnitude of negative inputs": ("negative", lambda x, y: torch.where(x < 0, (-x).sqrt(), y)),
    "negative subnormals taken for zero": ("negative", lambda x, y: torch.where((x < 0) & (x > -1e-38), 0.0, y)),
}


def test_nothing_is_wrong_beyond_the_finite_inputs(rng: np.random.Generator) -> None:
    assert not any(wrong_beyond_finite(correct, rng)[:-1])


@pytest.mark.parametrize("fault", BEYOND)
def test_a_wrong_answer_beyond_the_finite_inputs_is_found(fault: str, rng: np.random.Generator) -> None:
    field, wrongly = BEYOND[fault]
    found = wrong_beyond_finite(lambda values: wrongly(values, correct(values)), rng)
    assert [name for name in found._fields[:-1] if getattr(found, name)] == [field]
