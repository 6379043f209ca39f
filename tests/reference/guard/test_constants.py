"""The guard's constants: rounded once and upwards, refused where nothing can be claimed, and the overflow limit."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import BETAS, PATHS, STEPS, Case, Setting
from torch import Tensor

from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.errors import GuardedMomentsError, InvalidClaimError, UnsupportedError
from guarded_moments.reference.floats import BINARY32, bits_of, from_bits
from guarded_moments.reference.guard import GuardConstants, claim_constants, rounding_slack
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.guard.search import largest_gradient
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import OpModel

INF = math.inf


def expected_squares(real: RealUpdate) -> dict[str, Fraction]:
    """The exact squares of the constants, some of which involve a square root."""
    w, complement, c, beta2, b, eps, step = real
    return {
        "w": w**2,
        "complement": complement**2,
        "radicand": (beta2 / b**2) ** 2,
        "curvature": (c / b**2) ** 2,
        "eps": eps**2,
        "step": step**2,
        "gap_cap": b**2 / c,
        "radicand_cap": b**2 / c / 4,
        "root_cap": b**2 / c / 27,
        "eps_cap": b**2 / c / (16 * eps) ** 2,
    }


@pytest.mark.parametrize("implementation", PATHS)
def test_each_is_within_one_unit_in_the_last_place_above_what_it_stands_for(implementation: str) -> None:
    for betas in BETAS:
        for step in STEPS:
            case = Setting(betas=betas, step=step, implementation=implementation).case()
            for name, square in expected_squares(case.real).items():
                value = getattr(case.constants, name)
                assert Fraction(value) ** 2 >= square, name
                if value:
                    assert Fraction(math.nextafter(value, 0)) ** 2 < square, f"{name} is {value!r}, a unit too large"


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_formula_is_adams(implementation: str) -> None:
    """What a kernel's constants say, read as a formula over the reals, is Adam's to the precision of binary32."""
    for beta1, beta2 in BETAS:
        for step in STEPS:
            case = Setting(betas=(beta1, beta2), step=step, implementation=implementation).case()
            rate, root = 1e-3 / (1 - beta1**step), (1 - beta2**step) ** 0.5
            for model in case.models:
                real = real_update(model, case.scalars)
                found = (real.w, real.complement, real.c, real.beta2, real.step * real.root, real.step / real.eps)
                expected = (1 - beta1, beta1, 1 - beta2, beta2, rate * root, rate / 1e-8)
                assert tuple(map(float, found)) == pytest.approx(expected, rel=1e-4), (model, step)


def test_the_threshold_is_rounded_down() -> None:
    for tolerance, lr in ((0.01, 1e-3), (0.1, 3e-4), (1e-5, 0.3)):
        threshold = Setting(tolerance=tolerance, lr=lr).case().constants.threshold
        exact = Fraction(tolerance) * Fraction(lr)
        assert Fraction(threshold) <= exact < Fraction(math.nextafter(threshold, INF))


def test_constants_cover_every_op_model() -> None:
    for name in PATHS:
        setting = Setting(implementation=name)
        case, options = setting.case(), setting.hyperparameters.options
        for model in case.models:
            slack = rounding_slack(model, options, case.scalars, BINARY32)
            assert slack is not None
            assert case.constants.slack_moment >= slack.moment
            assert case.constants.slack_reciprocal >= slack.reciprocal
            assert case.constants.slack_gradient >= slack.gradient
            assert case.constants.slack_floor >= slack.floor


@pytest.mark.parametrize(
    ("setting", "error", "text"),
    [
        (Setting(eps=0.0), UnsupportedError, r"eps is 0 in binary32"),
        (Setting(eps=1e-46), UnsupportedError, r"eps is 0 in binary32"),
        (Setting(eps=1e-45), UnsupportedError, r"eps 1\.4\d*e-45 is so small that rounding alone"),
        (Setting(eps=1e-30, step=1.0), UnsupportedError, r"so small that rounding alone"),
        (Setting(lr=0.0), UnsupportedError, r"lr 0\.0 gives a step size of -?0\.0.*pass the learning rate"),
        (Setting(lr=1e-50), UnsupportedError, r"lr 1e-50 gives a step size of -?0\.0"),
        (Setting(lr=1e39), UnsupportedError, r"lr 1e\+39 gives a step size of -inf"),
        (Setting(lr=math.nan), UnsupportedError, r"lr nan gives a step size of nan"),
        (Setting(bound=1e21), InvalidClaimError, r"grad-bound 1e\+21 is above the overflow limit 5\.83\d*e\+20"),
        (Setting(bound=3.4e38), InvalidClaimError, r"use inf, which means every gradient up to that limit"),
        (Setting(betas=(-0.5, 0.75)), UnsupportedError, r"betas -0\.5, 0\.75 leave a moment without its gradient"),
        (Setting(betas=(0.9, 1.0)), UnsupportedError, r"the kernel constants .* are not ones that the guard covers"),
        (
            Setting(implementation="torch-2.13-cpu-avx2/compiled", betas=(0.4, 0.999)),
            UnsupportedError,
            "a compiled step forms it in double precision",
        ),
    ],
)
def test_what_cannot_be_claimed_is_refused(setting: Setting, error: type[GuardedMomentsError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        setting.case()
    assert "\n" not in str(caught.value)


class Watched:
    """Binary32 that remembers which operations gave a result that is not finite."""

    def __init__(self) -> None:
        self.overflowed: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        method = getattr(TorchBinary32(), name)

        def watched(*operands: Any) -> Tensor:  # noqa: ANN401 - as the operation's
            result: Tensor = method(*operands)
            if not bool(result.float().isfinite().all()):
                self.overflowed.append(name)
            return result

        return watched


def overflows(case: Case, model: OpModel, g: float) -> list[str]:
    """The operations that overflow for some state of the domain's corners at `g` or `-g`."""
    corners = np.meshgrid(
        np.array([0, 1e-45, 1, LARGEST_MOMENT, -LARGEST_MOMENT], dtype=np.float32),
        np.array([0, 1e-45, 1, LARGEST_SECOND_MOMENT], dtype=np.float32),
        np.array([g, -g], dtype=np.float32),
    )
    m, v, gradient = (torch.from_numpy(corner.reshape(-1)) for corner in corners)
    watched = Watched()
    op = cast("TorchBinary32", watched)
    constants = Scalars(*(op.constant(value) for value in case.scalars))
    make_update(op, model, case.options)(m, v, gradient, constants)
    return watched.overflowed


@pytest.mark.parametrize("implementation", PATHS)
@pytest.mark.parametrize("betas", BETAS, ids=str)
def test_nothing_overflows_up_to_the_limit_and_v_does_a_little_above(
    implementation: str, betas: tuple[float, float]
) -> None:
    for step in STEPS:
        for lr, eps in ((1e-3, 1e-8), (1.0, 1.0), (1e-12, 1e-12)):
            case = Setting(betas, step, INF, lr, eps, implementation=implementation).case()
            limit = largest_gradient(case.constants)
            for model in case.models:
                assert overflows(case, model, limit) == [], (case.scalars, limit)
                assert overflows(case, model, limit * (1 + 1e-5)) != [], (case.scalars, limit)


@pytest.mark.parametrize("lr", [1e10, 1e20, 1e30])
def test_nothing_overflows_up_to_the_limit_with_a_huge_learning_rate(lr: float) -> None:
    for implementation in PATHS:
        setting = Setting(bound=INF, lr=lr, eps=1e-4, implementation=implementation)
        try:
            case = setting.case()
        except UnsupportedError:
            with pytest.raises(UnsupportedError, match=r"may overflow for these hyperparameters"):
                setting.case()
            continue
        assert case.constants.gradient_bound > 0
        for model in case.models:
            assert overflows(case, model, largest_gradient(case.constants)) == []


def test_a_learning_rate_that_overflows_at_once_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"may overflow for these hyperparameters .* at any gradient"):
        Setting(bound=INF, lr=1e37).case()


def test_an_infinite_bound_is_the_limit_and_a_finite_one_stays() -> None:
    unbounded = Setting(bound=INF).case().constants

    assert 5.82e20 < unbounded.gradient_bound < 5.84e20
    assert Setting(bound=unbounded.gradient_bound).case().constants == unbounded
    assert Setting(bound=1e-3).case().constants == unbounded._replace(gradient_bound=1e-3)
    above = from_bits(bits_of(unbounded.gradient_bound) + 1)
    with pytest.raises(InvalidClaimError, match=r"above the overflow limit"):
        Setting(bound=above).case()


@pytest.mark.parametrize(
    ("weights", "covered"),
    [
        ({"w": Fraction(1), "complement": Fraction(0)}, True),
        ({"w": Fraction(0)}, False),
        ({"w": Fraction(5, 4)}, False),
        ({"c": Fraction(0)}, False),
        ({"c": Fraction(5, 4)}, False),
    ],
)
def test_a_gradient_that_has_no_share_of_a_moment_is_refused(
    weights: dict[str, Fraction], *, covered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no weight at all, which no betas give; or of more than all."""

    def weighted(*arguments: Any) -> RealUpdate:  # noqa: ANN401 - as the function's
        return real_update(*arguments)._replace(**weights)

    monkeypatch.setattr(claim_constants, "real_update", weighted)
    if covered:
        assert Setting().case().constants.w == 1.0
    else:
        with pytest.raises(UnsupportedError, match=r"leave a moment without its gradient"):
            Setting().case()


@pytest.mark.parametrize("limits", [(5.0, 3.0), (3.0, 5.0)])
def test_the_limit_is_the_smallest_of_the_op_models(
    limits: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"].models
    of_model = dict(zip(models, limits, strict=True))
    monkeypatch.setattr(claim_constants, "largest_finite_gradient", lambda model, *_: of_model[model])
    setting = Setting(bound=INF, implementation="torch-2.13-cpu-avx2/fused")
    assert setting.case().constants.gradient_bound == 3.0
    with pytest.raises(InvalidClaimError, match=r"above the overflow limit 3 "):
        replace(setting, bound=4.0).case()


def test_fields_are_finite_and_not_negative() -> None:
    for implementation in PATHS:
        for betas in BETAS:
            constants: GuardConstants[float] = Setting(betas, bound=INF, implementation=implementation).case().constants
            assert all(0 <= value < INF for value in constants), constants
