"""The reduction: its constants against exact powers, and both directions of what it says, in exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.horizon.runs import PRECISION, ExactState, gamma, number, run_of, sequences

from guarded_moments.reference.guard.real_update import RealUpdate
from guarded_moments.reference.horizon.reduction import LEAST_WEIGHT, Reduced, coarse, reduced

BETAS = [(0.9, 0.999), (0.9, 0.95), (0.0, 0.99), (0.95, 0.9)]


def reductions(betas: tuple[float, float], updates: int) -> tuple[list[RealUpdate], list[Reduced]]:
    run = run_of(betas)
    reals = [run.real(update) for update in range(1, updates + 1)]
    return reals, list(reduced(reals))


@pytest.mark.parametrize("betas", BETAS, ids=str)
def test_constants_are_those_of_the_formula(betas: tuple[float, float]) -> None:
    reals, found = reductions(betas, 60)
    with mpmath.workprec(PRECISION):
        beta1, beta2, w = (number(getattr(reals[0], name)) for name in ("complement", "beta2", "w"))
        for j, (real, one) in enumerate(zip(reals, found, strict=True), start=1):
            scale = beta2 ** (-mpmath.mpf(j) / 2)
            expected = {
                "w": w * mpmath.sqrt(sum((beta1**2 / beta2) ** age for age in range(j))),
                "complement": max(beta1**j * scale, number(LEAST_WEIGHT)),
                "eps": number(real.eps) * number(real.root) * scale,
                "step": number(real.step) * number(real.root),
            }
            for name, exact in expected.items():
                value = number(getattr(one.real, name))
                assert exact * (1 - mpmath.mpf(2) ** -380) <= value <= exact * (1 + mpmath.mpf(2) ** -140), (j, name)
            assert number(one.scale) == pytest.approx(scale, rel=1e-15)
            assert number(one.reach) == pytest.approx(mpmath.sqrt(sum(beta2**-i for i in range(1, j + 1))), rel=1e-15)


def deviation(real: RealUpdate, state: tuple[float, ...], y: mpmath.mpf) -> mpmath.mpf:
    """Of one update of the formula, at a gradient."""
    m, v, m_hat, v_hat = (mpmath.mpf(x) for x in state)
    w, complement, c, eps, step = (number(getattr(real, name)) for name in ("w", "complement", "c", "eps", "step"))

    def update(m: mpmath.mpf, v: mpmath.mpf) -> mpmath.mpf:
        return step * (complement * m + w * y) / (mpmath.sqrt(v + c * y * y) + eps)

    return abs(update(m_hat, v_hat) - update(m, v))


@pytest.mark.parametrize("betas", BETAS, ids=str)
def test_no_sequence_deviates_by_more_than_the_update_that_stands_for_it(
    betas: tuple[float, float], rng: np.random.Generator
) -> None:
    run, count, updates = run_of(betas), 40, 12
    v = (2.0 ** rng.uniform(-40, 0, count)).astype(np.float32)
    m = (np.sqrt(v) * rng.uniform(-3, 3, count)).astype(np.float32)
    m_hat = (m * (1 + rng.uniform(-0.02, 0.02, count))).astype(np.float32)
    v_hat = (v * (1 + rng.uniform(-0.1, 0.1, count))).astype(np.float32)
    gradients = sequences(rng, run, v, updates)
    reals, found = reductions(betas, updates)
    closest = mpmath.mpf(0)
    with mpmath.workprec(PRECISION):
        native, recovered = ExactState.of(m, v), ExactState.of(m_hat, v_hat)
        for j, (real, one) in enumerate(zip(reals, found, strict=True), start=1):
            native, recovered = (state.after(real, gradients[j - 1]) for state in (native, recovered))
            y = gamma(real, gradients[:j])
            for i, (a, b) in enumerate(zip(native.update(real), recovered.update(real), strict=True)):
                state = tuple(float(x[i]) for x in (m, v, m_hat, v_hat))
                most = max(deviation(one.real, state, sign * y[i]) for sign in (1, -1))
                assert abs(b - a) <= most * (1 + mpmath.mpf(2) ** -100), (j, state, gradients[:j, i])
                closest = max(closest, abs(b - a) / most) if most else closest
    assert closest > 1 - 1e-9, "the worst sequences attain it"


@given(st.integers(0, 10**60), st.integers(1, 10**60), st.integers(-2000, 2000))
def test_a_coarse_number_is_a_little_above(numerator: int, denominator: int, exponent: int) -> None:
    value = Fraction(numerator, denominator) * Fraction(2) ** exponent
    assert value <= coarse(value) <= value * (1 + Fraction(1, 2**199))
