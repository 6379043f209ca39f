"""Where cells begin and are cut: at what the module's header says, which decides how long a search takes."""

import pytest
import torch
from tests.reference.guard.cases import BETAS, PATHS, Setting

from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard.closed_form import lifted
from guarded_moments.reference.guard.cut import make_cut, make_first_end, make_scale

OP = TorchBinary64()


def value(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64)


@pytest.mark.parametrize("implementation", PATHS)
def test_at_the_scale_the_gradient_weighs_in_the_larger_reciprocal_what_all_else_does(implementation: str) -> None:
    """`q*g = sqrt(radicand*v) + eps`, of the smaller `v`."""
    for betas in BETAS:
        case = Setting(betas=betas, eps=1e-4, step=400.0, implementation=implementation).case()
        q = float(case.real.c) ** 0.5 / float(case.real.root)
        for v, v_hat in ((1e-4, 1e-5), (1e-5, 1e-4), (0.0, 1e-7), (1e-7, 1e-7)):
            scale = float(make_scale(OP)(lifted(case.constants), value(v), value(v_hat)))
            radicand = float(case.real.beta2) / float(case.real.root) ** 2
            rest = (radicand * min(v, v_hat)) ** 0.5 + float(case.real.eps)
            assert q * scale == pytest.approx(rest, rel=1e-12), (betas, v, v_hat)


@pytest.mark.parametrize(("share", "scale", "limit", "end"), [(0.5, 3.0, 8.0, 1.5), (3.0, 3.0, 8.0, 8.0), (0, 3, 8, 0)])
def test_a_first_end_is_a_share_of_the_scale_within_the_claim(
    share: float, scale: float, limit: float, end: float
) -> None:
    assert float(make_first_end(OP)(value(share), value(scale), value(limit))) == end


@pytest.mark.parametrize(
    ("low", "high", "cut"),
    [
        (1.0, 2.0, 1.5),
        (1.0, 16.0, 8.5),
        (1.0, 16.5, 4.0),  # far apart: near the low end
        (0.0, 8.0, 4.0),
        (1.0, 1.0 + 2.0**-23, 1.0),  # neighbours: one of them
        (0.0, 2.0**-149, 0.0),
    ],
)
def test_a_cut_is_the_middle_or_near_the_low_end_of_a_long_cell(low: float, high: float, cut: float) -> None:
    assert float(make_cut(OP)(value(low), value(high))) == cut
