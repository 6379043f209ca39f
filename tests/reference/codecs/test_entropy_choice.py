"""The choice of steps and of what rows say: it follows the tolerance, pays for itself, and is at a loss for nothing."""

import math

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting
from tests.strategies import wild

from guarded_moments.reference.codecs import Entropy
from guarded_moments.reference.codecs.entropy_choice import choose


def rank_one(rng: np.random.Generator, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Second moments that a row and a column explain but for a little."""
    octaves = rng.normal(0, 3, (rows, 1)) + rng.normal(0, 3, columns) + rng.normal(0, 0.3, (rows, columns)) - 30
    v = 2.0**octaves
    m = rng.standard_normal(v.shape) * 0.3 * np.sqrt(v)
    return torch.from_numpy(m.astype(np.float32)).flatten(), torch.from_numpy(v.astype(np.float32)).flatten()


@pytest.mark.parametrize("tolerance", [0.005, 0.02])
def test_steps_grow_with_the_tolerance_and_nearly_all_is_accepted(tolerance: float, rng: np.random.Generator) -> None:
    m, v = rank_one(rng, 40, 50)
    found, guards = [], [Setting(step=400.0, tolerance=tau).case().guard for tau in (tolerance, 2 * tolerance)]
    for guard in guards:
        codec = Entropy.fit(m, v, guard, 50)
        assert float(guard(m, v, *codec.decode(*codec.encode(m, v))).float().mean()) > 0.99
        found.append(codec.choice)

    assert math.log2(float(found[1].step) / float(found[0].step)) == pytest.approx(1, abs=0.4)
    assert math.log2(found[1].pitch / found[0].pitch) == pytest.approx(1, abs=0.4)
    assert math.log2(float(found[1].step) * found[1].pitch / float(found[0].step) / found[0].pitch) == pytest.approx(
        2, abs=0.2
    )


def test_rows_and_columns_are_taken_where_they_pay(rng: np.random.Generator) -> None:
    guard = Setting(step=400.0).case().guard
    m, v = rank_one(rng, 40, 50)
    mixed = torch.randperm(len(v), generator=torch.Generator().manual_seed(1))

    pays, not_given, says_nothing = (
        choose(m, v, guard, 50),
        choose(m, v, guard, None),
        choose(m[mixed], v[mixed], guard, 50),
    )

    assert (len(pays.rows), len(pays.columns)) == (40, 50)
    assert len(not_given.rows) == len(says_nothing.rows) == 0
    assert pays.low_bits[1] < not_given.low_bits[1]


def test_what_is_odd_has_codes_all_the_same(rng: np.random.Generator) -> None:
    guard = Setting(step=400.0).case().guard
    zero, one = torch.zeros(40), torch.ones(40)
    odd = torch.from_numpy(wild(40, rng))
    for m, v in (
        (zero, zero),
        (one, zero),
        (zero, one),
        (odd, odd),
        (one, one * 1e-45),
        (one * torch.nan, one),
        (zero[:0],) * 2,
    ):
        for row in (None, 8) if len(v) else (None,):
            codec = Entropy.fit(m, v, guard, row)
            covered = m.isfinite() & v.isfinite() & (v >= 0)
            decoded = codec.decode(*codec.encode(torch.where(covered, m, 0), torch.where(covered, v, 0)))
            assert all(bool(x.isfinite().all()) for x in decoded)
