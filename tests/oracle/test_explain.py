"""One coordinate, explained: the parts agree with the codec, the guard, the search, enumeration and each other."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.oracle.explain import Explanation, explain
from guarded_moments.oracle.worst_case import Verdict
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.errors import InvalidClaimError, PlatformError, UnsupportedError
from guarded_moments.reference.floats import hex_of, round_to_binary32
from guarded_moments.reference.guard import closed_form_guard, in_domain
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS

NAMES = sorted(IMPLEMENTATIONS)
NAME = "torch-2.13-cpu-avx2/single"
HYPERPARAMETERS = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)
GRIDS = Log8(LogGrid.spanning(-22.0, -8.0, M_LEVELS), LogGrid.spanning(-36.0, -16.0, V_LEVELS))


def explained(
    m: float,
    v: float,
    *,
    name: str = NAME,
    tolerance: float = 0.01,
    grad_bound: float = 1.0,
    step: float = 1000.0,
    hyperparameters: Hyperparameters = HYPERPARAMETERS,
) -> Explanation:
    claim = Claim(Tolerance(tolerance), GradientBound(grad_bound), name)
    return explain(claim, hyperparameters, step, GRIDS, m, v)


def of_trained_size(draw_m: float, draw_v: float, sign: float) -> tuple[float, float]:
    """A state as training leaves it, from two numbers in [0, 1]."""
    v = 2.0 ** (-34 + 16 * draw_v)
    m = sign * math.sqrt(v) * 2.0 ** (-8 + 8 * draw_m)
    return float(np.float32(m)), float(np.float32(v))


STATES = st.builds(of_trained_size, st.floats(0, 1), st.floats(0, 1), st.sampled_from((-1.0, 1.0)))


def check(found: Explanation, name: str, tolerance: float, lr: float) -> None:
    """Assert that the parts of an explanation fit together."""
    what = f"{name}, m {hex_of(found.m)}, v {hex_of(found.v)}"
    assert found.terms is not None
    assert found.bound is not None
    assert found.worst_deviation is not None
    assert found.worst_upper is not None
    assert found.worst_gradient is not None
    m, v = (torch.tensor([value], dtype=torch.float32) for value in (found.m, found.v))
    codes = GRIDS.encode(m, v)
    assert (found.m_code, found.v_code) == (int(codes[0]), int(codes[1])), what
    decoded = GRIDS.decode(*codes)
    assert (found.m_hat, found.v_hat) == (float(decoded[0]), float(decoded[1])), what
    assert found.accepted == bool(closed_form_guard(found.constants, m, v, *decoded)), what
    same = (found.m, found.v) == (found.m_hat, found.v_hat)
    assert found.accepted == (found.bound <= tolerance or same), what
    # The floor of the slack and the guard's own rounding are in the bound and in no term.
    assert sum(found.terms) <= found.bound <= sum(found.terms) * (1 + 1e-12) + 3 * found.constants.slack_floor / lr, (
        what
    )
    native, recovered = found.native_trace[-1].result, found.recovered_trace[-1].result
    deviation = abs(Fraction(recovered) - Fraction(native)) / Fraction(lr)
    assert found.worst_deviation == pytest.approx(float(deviation), rel=1e-15), what
    assert found.worst_deviation <= found.worst_upper * (1 + 1e-15), what
    assert found.worst_deviation <= found.bound, what
    assert abs(found.worst_gradient) <= found.claim.gradient_bound.value, what
    assert round_to_binary32(found.worst_gradient) == found.worst_gradient, what
    assert found.verdict is not Verdict.UNDECIDED, what
    assert (found.verdict is Verdict.UNSAFE) == (deviation > Fraction(tolerance)), what
    if found.accepted:
        assert found.verdict is Verdict.SAFE, f"{what}: the guard accepts what violates"


@settings(max_examples=25)
@given(STATES, st.sampled_from(NAMES), st.sampled_from((1e-3, 0.01, 0.05)), st.sampled_from((1e-3, 1.0, math.inf)))
@example((0.0, 0.0), NAME, 0.01, 1.0)
@example((1e-3, 0.0), NAME, 0.01, 1.0)
@example((0.0, 1e-8), NAME, 0.01, 1.0)
def test_the_parts_of_an_explanation_agree(
    state: tuple[float, float], name: str, tolerance: float, grad_bound: float
) -> None:
    found = explained(*state, name=name, tolerance=tolerance, grad_bound=grad_bound)

    assert found.covered
    check(found, name, tolerance, HYPERPARAMETERS.lr)


@settings(max_examples=25)
@given(binary32(), binary32())
def test_what_is_covered_is_what_the_guard_speaks_about(m: float, v: float) -> None:
    # A bound of almost nothing: only what is covered is of interest, and no search is then long.
    found = explained(m, v, grad_bound=2.0**-140, tolerance=0.01)

    tensors = [torch.tensor([value], dtype=torch.float32) for value in (m, v)]
    assert found.covered == bool(in_domain(*tensors)), (hex_of(m), hex_of(v))
    if not found.covered:
        assert (found.verdict, found.bound, found.m_code, found.native_trace) == (None, None, None, ())
        assert not found.accepted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grad_bound", [2.0**-140, 2.0**-20])
def test_the_worst_gradient_is_the_worst_of_all(name: str, grad_bound: float) -> None:
    m, v = float(np.float32(-3e-5)), float(np.float32(2e-9))
    found = explained(m, v, name=name, grad_bound=grad_bound)
    assert found.m_hat is not None
    assert found.v_hat is not None
    assert found.worst_deviation is not None
    assert found.worst_upper is not None

    last = int(np.float32(grad_bound).view(np.int32))
    every = np.arange(0, last + 1, max(1, last >> 18), dtype=np.int32).view(
        np.float32
    )  # all, or evenly a quarter million
    g = np.concatenate([every, -every])
    op = NumpyBinary32()
    scalars = Scalars(*(op.constant(value) for value in found.scalars))
    update = make_update(op, IMPLEMENTATIONS[name].body, HYPERPARAMETERS.options)
    one, other = (
        update(np.full_like(g, first), np.full_like(g, second), g, scalars).astype(np.float64)
        for first, second in ((m, v), (found.m_hat, found.v_hat))
    )
    worst = float(np.abs(other - one).max()) / HYPERPARAMETERS.lr
    assert worst <= found.worst_upper
    assert found.worst_deviation >= worst * (1 - 1e-5), "up to the rounding between neighbouring gradients"


@pytest.mark.parametrize(
    "hyperparameters",
    [
        Hyperparameters(lr=1e-3, beta1=0.3, beta2=0.9, eps=1e-8, weight_decay=0.1, decoupled=False),
        Hyperparameters(lr=3e-4, beta1=0.9, beta2=0.95, eps=1e-5, weight_decay=0.1, decoupled=True, maximize=True),
        Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, decoupled=True, lr_is_tensor=True),
        Hyperparameters(lr=100.0, beta1=0.0, beta2=0.5, eps=1e-3, weight_decay=0, decoupled=True),
    ],
    ids=["Adam", "AdamW", "tensor lr", "large"],
)
@pytest.mark.parametrize("step", [1.0, 2.0, 1e5])
def test_other_hyperparameters_and_steps_agree_too(hyperparameters: Hyperparameters, step: float) -> None:
    found = explained(float(np.float32(2e-4)), float(np.float32(1e-7)), step=step, hyperparameters=hyperparameters)

    check(found, NAME, 0.01, hyperparameters.lr)


def test_what_cannot_be_claimed_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="op model 'abacus'"):
        explained(1e-4, 1e-8, name="abacus")
    with pytest.raises(InvalidClaimError, match="overflow limit"):
        explained(1e-4, 1e-8, grad_bound=1e30)
    with pytest.raises(UnsupportedError, match="amsgrad"):
        explained(1e-5, 1e-9, hyperparameters=replace(HYPERPARAMETERS, amsgrad=True))


def test_flush_to_zero_is_refused(threads: None) -> None:
    torch.set_num_threads(1)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush")
    try:
        with pytest.raises(PlatformError, match="flush-to-zero"):
            explained(1e-4, 1e-8)
    finally:
        torch.set_flush_denormal(False)
