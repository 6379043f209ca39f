"""The rounding slack: its constants against numbers derived elsewhere, and the slack itself against exact updates."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from tests.reference.guard.cases import BETAS, PATHS, PRECISION, Case, Setting, exact_update, pairs, settings
from tests.strategies import Array

from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary64
from guarded_moments.reference.floats import BINARY32, FloatFormat, hex_of
from guarded_moments.reference.guard import RoundingSlack, rounding_slack
from guarded_moments.reference.guard import slack as slack_module
from guarded_moments.reference.guard.closed_form import bound_inflation, lifted, make_trajectory_slack
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT
from guarded_moments.reference.guard.real_update import RealUpdate, real_update
from guarded_moments.reference.guard.slack import DenominatorError, denominator_error
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import Correction, Interpolation, OpModel, SecondMoment, SquareRoot, Update
from guarded_moments.reference.scalars import kernel_scalars

U = float(BINARY32.unit_roundoff)
N = float(BINARY32.half_smallest_subnormal)
MODELS = sorted({model for implementation in IMPLEMENTATIONS.values() for model in implementation.models}, key=str)
#: One interpolation rounding, three of `v'`, a correctly rounded root, a product and a quotient.
FUSED_MODEL = IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"].body


def slack_of(model: OpModel, setting: Setting, fmt: FloatFormat = BINARY32) -> RoundingSlack | None:
    hyperparameters = setting.hyperparameters
    return rounding_slack(model, hyperparameters.options, kernel_scalars(hyperparameters, setting.step), fmt)


def real_of(model: OpModel, setting: Setting) -> RealUpdate:
    return real_update(model, kernel_scalars(setting.hyperparameters, setting.step))


def coefficients(slack: RoundingSlack, real: RealUpdate) -> tuple[float, float]:
    """What multiplies the moment's and the gradient's share, `cM` and `cR` of the lemma chain, from a slack."""
    w, c, root = float(real.w), float(real.c), float(real.root)
    both = float(slack.gradient) / (w * root / c**0.5)  # cM + cR
    moment = float(slack.moment)  # (1-w) cM + w cR
    of_gradient = (moment - (1 - w) * both) / (2 * w - 1)
    return both - of_gradient, of_gradient


#: `cM` and `cR`, over the unit roundoff `u = 2^-24`, where `eps` is not small: derived by certificates on the lemma
#: chain, apart from this code.  `cM = 3 + rho`, and `rho` counts three roundings of `v'` halved by the root, the root
#: itself (1 u; 3 u for a platform's root within one ulp of the correctly rounded one), the division and the sum.
#: `cR` counts the interpolation: one rounding if its product is fused, else two.
EXPECTED_MOMENT = {SquareRoot.CORRECT: 7.507, SquareRoot.PLATFORM: 9.507}
EXPECTED_GRADIENT = {Interpolation.FMA: 1.001, Interpolation.SEPARATE: 2.001, Interpolation.FMA_TWICE: 2.001}


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.98)], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_constants_are_the_known_ones(model: OpModel, betas: tuple[float, float]) -> None:
    setting = Setting(betas=betas, step=400.0)
    slack = slack_of(model, setting)
    assert slack is not None

    of_moment, of_gradient = coefficients(slack, real_of(model, setting))

    expected_moment, expected_gradient = EXPECTED_MOMENT[model.square_root], EXPECTED_GRADIENT[model.interpolation]
    assert expected_moment - 0.008 < of_moment / U <= expected_moment
    assert expected_gradient - 0.002 < of_gradient / U <= expected_gradient
    if model.update is Update.MULTIPLY_THEN_DIVIDE:
        assert float(slack.floor) == N
    else:  # the quotient underflows before it is multiplied by the step size
        assert N < float(slack.floor) <= (1 + 1.001 * float(real_of(model, setting).step)) * N


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_written_from_the_other_end_the_interpolation_counts_as_not_fused(model: OpModel) -> None:
    setting = Setting(betas=(0.4, 0.999), step=400.0)
    assert setting.hyperparameters.options.interpolate_from_end
    slack = slack_of(model, setting)
    assert slack is not None

    _, of_gradient = coefficients(slack, real_of(model, setting))

    assert 1.999 < of_gradient / U <= 2.001


@pytest.mark.parametrize("eps", [1e-8, 1e-12, 1e-15])
def test_a_small_eps_costs_what_it_should(eps: float) -> None:
    """Three underflows of `v'` move the denominator by up to `sqrt(3 n) / b`: 24 u of an eps of 1e-15."""
    setting = Setting(step=1.0, eps=eps)
    slack = slack_of(FUSED_MODEL, setting)
    assert slack is not None

    of_moment, _ = coefficients(slack, real_of(FUSED_MODEL, setting))

    expected = 7.506 + (3 * N) ** 0.5 / (1 - 0.999) ** 0.5 / eps / U
    assert of_moment / U == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("eps", [1e-22, 1e-30, 1e-45])
def test_a_tiny_eps_has_no_slack(eps: float) -> None:
    for model in MODELS:
        if model.correction is Correction.DIVIDE:
            assert slack_of(model, Setting(step=1.0, eps=eps)) is None


def test_a_denominator_that_may_be_wholly_wrong_has_no_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rho in (1 - Fraction(1, 10**30), Fraction(1), Fraction(3, 2)):

        def wrong(*arguments: Any, rho: Fraction = rho) -> DenominatorError:  # noqa: ANN401 - as the function's
            return denominator_error(*arguments)._replace(rho=rho)

        monkeypatch.setattr(slack_module, "denominator_error", wrong)
        found.append(slack_of(FUSED_MODEL, Setting(step=400.0)) is not None)
    assert found == [True, False, False]


def test_constants_in_a_format_of_six_bits() -> None:
    setting = Setting(step=400.0)
    slack = slack_of(FUSED_MODEL, setting, FloatFormat(precision=6, largest_exponent=127))
    assert slack is not None

    of_moment, of_gradient = coefficients(slack, real_of(FUSED_MODEL, setting))

    assert 8.3 < of_moment * 2**6 <= 8.392
    assert 1.12 < of_gradient * 2**6 <= 1.132


def test_the_absolute_part_counts_two_underflows() -> None:
    """`cN n H0` for the interpolation and `cz n H0 / a` for the product with the step size, both about 1."""
    for lr in (1e-3, 10.0):
        setting = Setting(step=400.0, lr=lr)
        slack = slack_of(FUSED_MODEL, setting)
        assert slack is not None
        step = float(real_of(FUSED_MODEL, setting).step)
        assert 1 + 1 / step < float(slack.reciprocal) / N < 1.001 * (1 + 1 / step)


def worse(a: RoundingSlack, b: RoundingSlack) -> bool:
    """Whether `a` allows at least what `b` does."""
    return all(x >= y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("betas", BETAS, ids=str)
@pytest.mark.parametrize("step", [1.0, 400.0])
def test_worse_errors_give_more_slack(betas: tuple[float, float], step: float) -> None:
    setting = Setting(betas=betas, step=step)
    for model in MODELS:
        slack = slack_of(model, setting)
        assert slack is not None
        for other in (
            replace(model, square_root=SquareRoot.PLATFORM),
            replace(model, interpolation=Interpolation.SEPARATE),
            replace(model, second_moment=SecondMoment.FMA_SQUARE),
        ):
            if real_of(other, setting) == real_of(model, setting):
                more = slack_of(other, setting)
                assert more is not None
                assert worse(more, slack), (model, other)
        for coarser in (
            slack_of(model, setting, FloatFormat(precision=20, largest_exponent=127)),
            slack_of(model, replace(setting, eps=1e-12)),
        ):
            assert coarser is not None
            assert worse(coarser, slack), model


def test_the_worst_of_two_covers_both() -> None:
    a = RoundingSlack(*map(Fraction, (1, 2, 3, 4)))
    b = RoundingSlack(*map(Fraction, (5, 4, 3, 2)))

    assert a.worst(b) == b.worst(a) == RoundingSlack(*map(Fraction, (5, 4, 3, 4)))


class Scaled:
    """The slack as the guard evaluates it for many states, times a factor."""

    def __init__(self, case: Case, factor: float = 1.0) -> None:
        self.case, self.factor = case, factor

    def __call__(self, m: Array, v: Array) -> Array:
        """In units of the parameter."""
        constants = self.case.constants
        moment, second = torch.from_numpy(m).double(), torch.from_numpy(v).double()
        reciprocal = ((constants.radicand * second).sqrt() + constants.eps).reciprocal()
        slack = constants.step * make_trajectory_slack(TorchBinary64())(lifted(constants), moment, reciprocal)
        return np.asarray(self.factor * ((slack + constants.slack_floor) * bound_inflation()).numpy())


def updates(model: OpModel, case: Case, m: Array, v: Array, g: Array) -> Array:
    """The bit-exact updates, on NumPy."""
    op = NumpyBinary32()
    constants = Scalars(*(op.constant(value) for value in case.scalars))
    return make_update(op, model, case.options)(m, v, g, constants)


def exceeding(case: Case, model: OpModel, states: tuple[Array, Array, Array], slack: Scaled) -> tuple[list[str], float]:
    """The states whose update is further from the exact one than the slack, and the largest share of it used."""
    m, v, g = states
    allowed, used, wrong = slack(m, v), 0.0, []
    with mpmath.workprec(PRECISION):
        step = -mpmath.mpf(case.real.step.numerator) / case.real.step.denominator
        for i, update in enumerate(updates(model, case, m, v, g).tolist()):
            exact = step * exact_update(case.real, float(m[i]), float(v[i]), float(g[i]))
            share = abs(mpmath.mpf(update) - exact) / mpmath.mpf(float(allowed[i]))
            used = max(used, float(share))
            if share > 1:
                state = ", ".join(f"{k} = {hex_of(float(x[i]))}" for k, x in (("m", m), ("v", v), ("g", g)))
                wrong.append(f"{model.name} {case.scalars}: {state}: {hex_of(update)} used {float(share)} of the slack")
    return wrong, used


def states_and_gradients(case: Case, count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """One state and one gradient each: everywhere, around where the denominator bends, at the bound, zero."""
    states = pairs(count, rng)
    m, v = states.m.numpy(), states.v.numpy()
    last = case.constants.gradient_bound
    bend = (np.sqrt(case.constants.radicand * v.astype(np.float64)) + case.constants.eps) * case.constants.gap_cap
    choices = (
        2.0 ** rng.uniform(-149, np.log2(last), count),
        bend * 2.0 ** rng.uniform(-6, 6, count),
        bend * 2.0 ** rng.uniform(-6, 6, count),
        rng.choice([0.0, last * (1 - 1e-6)], count),
    )
    g = np.minimum(np.choose(rng.integers(4, size=count), choices), last * (1 - 1e-6))
    return m, v, (g * rng.choice([-1, 1], count)).astype(np.float32)


@pytest.fixture(scope="module")
def amount(budget: int) -> int:
    return 150 * budget


def cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    for setting in settings(rng, count):
        yield setting.case()


def test_no_update_is_further_from_the_exact_one_than_the_slack(rng: np.random.Generator, amount: int) -> None:
    most = 0.0
    for case in cases(rng, 20):
        for model in case.models:
            wrong, used = exceeding(case, model, states_and_gradients(case, amount, rng), Scaled(case))
            assert wrong == []
            most = max(most, used)
    assert most > 0.2, "a slack that nothing comes near to is not tested"


def test_at_the_corners_of_the_domain_too(rng: np.random.Generator) -> None:
    corners = np.meshgrid(
        np.array([0, 1e-45, -1e-38, 1e-8, 1, LARGEST_MOMENT], dtype=np.float32),
        np.array([0, 1e-45, 1e-38, 1e-16, 1, LARGEST_SECOND_MOMENT], dtype=np.float32),
        np.array([0, 1e-45, -1e-40, 1e-19, -1e-8, 1, -1e10, 1e19], dtype=np.float32),
    )
    m, v, g = (corner.reshape(-1) for corner in corners)
    for path in PATHS:
        for setting in (
            Setting(implementation=path, bound=np.inf),
            Setting(implementation=path, betas=(0.0, 0.9), step=1),
        ):
            case = setting.case()
            within = np.abs(g) <= case.constants.gradient_bound
            for model in case.models:
                wrong, _ = exceeding(case, model, (m[within], v[within], g[within]), Scaled(case))
                assert wrong == []


def test_a_slack_cut_to_a_fifth_is_exceeded(rng: np.random.Generator) -> None:
    wrong: list[str] = []
    for case in cases(rng, 8):
        states = states_and_gradients(case, 200, rng)
        wrong += exceeding(case, case.implementation.body, states, Scaled(case, factor=0.2))[0]
    assert len(wrong) > 5


def test_options_are_those_of_the_hyperparameters() -> None:
    assert Setting(betas=(0.5, 0.9)).hyperparameters.options == StepOptions(interpolate_from_end=True)
    assert Setting(betas=(0.51, 0.9)).hyperparameters.options == StepOptions()
