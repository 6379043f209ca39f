"""What torch's clipping leaves is within the bounds, for every element that is finite; and nearly reaches them."""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from guarded_moments.reference import clipping
from guarded_moments.reference.clipping import (
    FLOOR,
    NORM_TYPES,
    SLACK,
    UNIT,
    bound_of_clipped_norm,
    bound_of_clipped_value,
    bound_with_l2_decay,
)
from guarded_moments.reference.errors import GuardedMomentsError

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
#: Gradients as they are, and as they should never be.
ELEMENT = st.one_of(st.floats(-4, 4, width=32), FINITE, st.sampled_from([0.0, 1e-45, 2.0**-63, 1.8e19, 3.4e38]))
GRADIENTS = st.lists(st.lists(ELEMENT, min_size=1, max_size=40), min_size=1, max_size=4)
MAX_NORM = st.one_of(st.floats(1e-3, 100), st.floats(clipping.SMALLEST, clipping.LARGEST))


def parameters_with(gradients: Iterable[Iterable[float]]) -> list[nn.Parameter]:
    """One parameter for each gradient, binary32."""
    made = []
    for gradient in gradients:
        values = torch.tensor(list(gradient), dtype=torch.float32)
        parameter = nn.Parameter(torch.zeros_like(values))
        parameter.grad = values
        made.append(parameter)
    return made


def largest_finite(parameters: Iterable[nn.Parameter]) -> float:
    """The largest magnitude of an element of the gradients that is a number."""
    gradients = [parameter.grad for parameter in parameters]
    found = torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]).abs()
    return float(found[found.isfinite()].max()) if bool(found.isfinite().any()) else 0.0


@given(GRADIENTS, MAX_NORM, st.sampled_from(NORM_TYPES), st.sampled_from([None, True, False]))
def test_no_clipped_element_is_above_the_bound(
    gradients: list[list[float]],
    max_norm: float,
    norm_type: float,
    foreach: bool | None,  # noqa: FBT001 - hypothesis gives it
) -> None:
    parameters = parameters_with(gradients)
    torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, foreach=foreach)

    bound = bound_of_clipped_norm(max_norm, norm_type)
    assert largest_finite(parameters) <= bound, (float.hex(max_norm), bound)


@pytest.mark.parametrize("norm_type", NORM_TYPES)
@pytest.mark.parametrize("foreach", [True, False])
def test_gradients_of_one_large_element_come_nearest(
    norm_type: float, *, foreach: bool, rng: np.random.Generator, budget: int
) -> None:
    """Without slack the bound would be wrong: the clipped element can be above the norm that was asked for."""
    largest = 0.0
    for _ in range(300 * budget):
        max_norm = float(rng.uniform(0.5, 2))
        gradient = torch.zeros(int(rng.integers(1, 70)))
        gradient[int(rng.integers(len(gradient)))] = float(rng.uniform(1, 2) * 2.0 ** rng.integers(4, 60))
        (parameter,) = parameters_with([gradient.tolist()])
        torch.nn.utils.clip_grad_norm_([parameter], max_norm, norm_type, foreach=foreach)
        element = largest_finite([parameter])
        assert element <= bound_of_clipped_norm(max_norm, norm_type)
        largest = max(largest, element / max_norm)
    assert 1 < largest < 1 + SLACK, "the slack is needed"


@pytest.mark.parametrize("max_norm", [1e-3, 1e-2, 1.0])
def test_gradients_at_the_end_of_the_range_need_the_floor(max_norm: float, rng: np.random.Generator) -> None:
    """The coefficient is subnormal there, and has few digits."""
    largest = 0.0
    for value in rng.uniform(2.0**120, 2.0**128 * (1 - 2.0**-24), 500):
        (parameter,) = parameters_with([[value]])
        torch.nn.utils.clip_grad_norm_([parameter], max_norm)
        element = largest_finite([parameter])
        assert element <= bound_of_clipped_norm(max_norm)
        largest = max(largest, element)
    if max_norm < 1:
        assert largest > max_norm * (1 + SLACK)
    assert Fraction(largest) - Fraction(max_norm) * (1 + SLACK) <= FLOOR


def test_the_argument_holds_for_any_order_of_adding(rng: np.random.Generator, budget: int) -> None:
    """Sums in random trees, with and without a fused product, in single or double precision; roots a unit too small."""
    for _ in range(300 * budget):
        terms = (rng.standard_normal(int(rng.integers(1, 200))) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
        wide = bool(rng.integers(2))
        left = [np.float64(x) * np.float64(x) if wide else x * x for x in terms]
        while len(left) > 1:
            i = int(rng.integers(len(left) - 1))
            left[i : i + 2] = [left[i] + left[i + 1]]
        norm = np.nextafter(np.sqrt(np.float32(left[0])), np.float32(0))
        assert all(Fraction(float(norm)) >= abs(Fraction(float(x))) * (1 - 3 * UNIT) for x in terms)


def test_the_slack_covers_the_argument() -> None:
    """Item 4 of the module, in exact arithmetic; two roots a unit too small and two squares rounded down."""
    assert (1 - UNIT) * (1 - 2 * UNIT) ** 2 >= 1 - 5 * UNIT
    assert (1 + UNIT) ** 3 * (1 + 4 * UNIT) / (1 - 5 * UNIT) < 1 + SLACK
    assert Fraction(2) ** 128 * Fraction(2) ** -150 * (1 + UNIT) / (1 - 5 * UNIT) + Fraction(2) ** -150 <= FLOOR * (
        1 + SLACK
    )
    smallest_divisor = Fraction(float(torch.tensor(1e-6)))
    assert Fraction(2) ** -60 / smallest_divisor * (1 + UNIT) ** 3 * (1 + 4 * UNIT) < Fraction(2) ** -39


def test_the_norm_of_gradients_that_underflow_is_too_small_and_does_no_harm() -> None:
    parameters = parameters_with([[1e-24] * 20, [2.0**-75]])
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1e-3)

    assert norm == 0
    assert largest_finite(parameters) <= bound_of_clipped_norm(1e-3)


@pytest.mark.parametrize("gradient", [[math.inf, 1.0], [math.nan, 1.0], [3e38, 3e38], [-math.inf]])
def test_norms_that_are_no_number_leave_nothing_above_the_bound(gradient: list[float]) -> None:
    parameters = parameters_with([gradient])
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    assert largest_finite(parameters) <= bound_of_clipped_norm(1.0)
    clipped = parameters[0].grad
    assert clipped is not None
    assert bool((clipped.isnan() | (clipped == 0)).all())


# Clipping by value


@given(GRADIENTS, st.floats(1e-30, 3e38), st.booleans())
def test_a_clipped_value_is_at_most_its_bound(gradients: list[list[float]], clip_value: float, foreach: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    parameters = parameters_with(gradients)
    torch.nn.utils.clip_grad_value_(parameters, clip_value, foreach=foreach)

    assert largest_finite(parameters) <= bound_of_clipped_value(clip_value)


@pytest.mark.parametrize("clip_value", [0.1, 1.0, 1e-3, 0.3, 1e10])
@pytest.mark.parametrize("foreach", [True, False])
def test_the_bound_of_a_clipped_value_is_attained(clip_value: float, *, foreach: bool) -> None:
    parameters = parameters_with([[1e20, -1e20, math.inf]])
    torch.nn.utils.clip_grad_value_(parameters, clip_value, foreach=foreach)

    assert largest_finite(parameters) == bound_of_clipped_value(clip_value)


# L2 decay


@given(FINITE, st.floats(0, 10), FINITE, st.booleans())
def test_what_enters_the_moments_after_l2_decay_is_within_the_bound(
    g: float,
    weight_decay: float,
    p: float,
    foreach: bool,  # noqa: FBT001 - hypothesis gives it
) -> None:
    """Adam itself, whose first moment with beta1 0 is the gradient that entered."""
    parameter = nn.Parameter(torch.tensor([p]))
    parameter.grad = torch.tensor([g])
    optimizer = torch.optim.Adam([parameter], betas=(0.0, 0.999), weight_decay=weight_decay, foreach=foreach)
    optimizer.step()

    entered = abs(float(optimizer.state[parameter]["exp_avg"]))
    assert entered <= bound_with_l2_decay(abs(g), weight_decay, abs(p)) or not math.isfinite(entered)


def test_l2_decay_of_an_unbounded_gradient_or_parameter_is_unbounded() -> None:
    assert bound_with_l2_decay(math.inf, 0.1, 1.0) == math.inf
    assert bound_with_l2_decay(1.0, 0.1, math.inf) == math.inf
    assert bound_with_l2_decay(1.0, 0.1, 2.0) == pytest.approx(1.2)
    assert bound_with_l2_decay(1.0, 0.1, 2.0) >= 1.2


REFUSED = [
    lambda: bound_of_clipped_norm(0.0),
    lambda: bound_of_clipped_norm(-1.0),
    lambda: bound_of_clipped_norm(math.nan),
    lambda: bound_of_clipped_norm(math.inf),
    lambda: bound_of_clipped_norm(1.0, 3.0),
    lambda: bound_of_clipped_norm(1.0, 0.0),
    lambda: bound_of_clipped_value(0.0),
    lambda: bound_of_clipped_value(-1.0),
    lambda: bound_of_clipped_value(1e39),
    lambda: bound_of_clipped_value(math.nan),
    lambda: bound_with_l2_decay(1.0, -0.1, 1.0),
    lambda: bound_with_l2_decay(math.nan, 0.1, 1.0),
]


@pytest.mark.parametrize("call", REFUSED, ids=range(len(REFUSED)))
def test_what_bounds_nothing_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(GuardedMomentsError):
        call()
