"""What `gmc explain --plot` draws: samples that are bit-exact, under cells that cover every gradient."""

import numpy as np
import torch
from tests.reference.guard.cases import Setting, describe, settings, trained_pairs

from guarded_moments.oracle.deviation_curve import SAMPLES, deviation_curve
from guarded_moments.reference.guard.search import largest_gradient


def test_the_cells_cover_every_magnitude_and_bound_every_sample(rng: np.random.Generator) -> None:
    for setting in settings(rng, 12):
        case = setting.case()
        states = trained_pairs(3, rng)
        for i in range(3):
            one = states.slice(i, i + 1)
            curve = deviation_curve(case.constants, case.trajectories(), one)
            assert float(curve.cell_low[0]) == 0
            assert float(curve.cell_high[-1]) == largest_gradient(case.constants)
            assert torch.equal(curve.cell_low[1:], curve.cell_high[:-1]), "a gap between cells"
            cell = torch.searchsorted(curve.cell_high, curve.gradient.double().abs()).clamp(
                max=len(curve.cell_high) - 1
            )
            assert bool((curve.deviation <= curve.cell_upper[cell]).all()), f"{case.scalars}: {describe(states, i)}"


def test_the_samples_are_of_both_signs_and_bit_exact(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    one = trained_pairs(1, rng)
    curve = deviation_curve(case.constants, case.trajectories(), one)
    assert len(curve.gradient) == 2 * SAMPLES + 1
    assert torch.equal(curve.gradient, -curve.gradient.flip(0))
    assert bool((curve.gradient.diff() >= 0).all())
    for place in (0, SAMPLES, 2 * SAMPLES - 100):
        again = case.trajectories().deviations(one, curve.gradient[place : place + 1])
        assert float(again) == float(curve.deviation[place])
