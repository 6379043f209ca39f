"""The joint search takes the first alternative that the guard accepts, of what was rejected and nothing else."""

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting
from tests.reference.kernels.inputs import trained

from guarded_moments.reference.checkpoint.alternatives import take_alternatives
from guarded_moments.reference.codecs import Codes, Joint, LogGrid
from guarded_moments.reference.codecs.grids import Grid, GridFamily
from guarded_moments.reference.guard import closed_form_guard


def single(levels: int) -> Grid:
    return LogGrid.spanning(-30.0, -4.0, levels) if levels == 127 else LogGrid.spanning(-52.0, -8.0, levels)


def family(levels: int) -> Grid:
    low, high = (-30.0, -4.0) if levels == 127 else (-52.0, -8.0)
    grids = [LogGrid.spanning(low - shift, high, levels) for shift in (0.0, 1.0, 2.0)]
    origins, pitches = (torch.tensor([getattr(grid, name) for grid in grids]) for name in ("origin", "pitch"))
    return GridFamily(LogGrid, origins, pitches, levels, 1500)


@pytest.mark.parametrize("grid", [single, family])
def test_as_one_after_the_other(grid: object, rng: np.random.Generator) -> None:
    assert callable(grid)
    codec, k = Joint(grid(127), grid(255)), Setting(step=400.0, tolerance=0.03).case().constants
    m, v = trained(rng, 3000)
    start = 1000
    codes = codec.encode(m, v, start)
    rejected = ~closed_form_guard(k, m, v, *codec.decode(*codes, start))
    rejected[::3], rejected[1::3] = False, True  # some as if: their alternatives are accepted far more often
    expected, left = Codes(*(code.clone() for code in codes)), rejected.clone()
    for tried in codec.alternatives(codes):
        better = left & closed_form_guard(k, m, v, *codec.decode(*tried, start))
        for code, other in zip(expected, tried, strict=True):
            code[better] = other[better]
        left &= ~better

    taken = take_alternatives(codec, k, m, v, codes, rejected, start)

    assert 0 < int(taken.sum()) < int(rejected.sum())
    assert torch.equal(taken, rejected & ~left)
    for name, ours, theirs in zip("mv", codes, expected, strict=True):
        assert torch.equal(ours, theirs), f"{name}: {(ours != theirs).sum()} codes differ"
