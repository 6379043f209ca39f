"""One bound of the gradient for all, or one for each param_group."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.reference.checkpoint.independent_reader import read as read_independently
from tests.reference.checkpoint.states import GROUP, compressed, differences, sample, state_of

from guarded_moments.oracle.audit import audit
from guarded_moments.reference.checkpoint import recover
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.errors import InvalidClaimError


@pytest.fixture(scope="module")
def native() -> dict[str, Any]:
    """Two param_groups of the same moments, at which a gradient of 1 counts and one of 1e-6 does not."""
    v = torch.logspace(-10, -2, 400)
    moments = (torch.linspace(-1e-5, 1e-5, 400) * v.sqrt(), v)
    state = state_of(moments, moments)
    state["param_groups"] = [{**GROUP, "params": [0]}, {**GROUP, "params": [1]}]
    return state


def test_each_param_group_has_its_own_bound(native: dict[str, Any]) -> None:
    state = compressed(native, grad_bound=[1.0, 1e-6], tolerance=0.003)
    alone = [compressed(native, grad_bound=bound, tolerance=0.003) for bound in (1.0, 1e-6)]

    assert [state.claim_for(tensor).gradient_bound.value for tensor in state.tensors] == [1.0, 1e-6]
    assert state.gradient_bound.value == 1e-6, "which holds of both"
    assert [tensor.digest() for tensor in state.tensors] == [alone[i].tensors[i].digest() for i in (0, 1)]
    assert state.tensors[0].digest() != state.tensors[1].digest(), "the bound matters"
    found = audit(state, native)
    assert found.holds
    assert [claim.split(", ")[1] for claim in found.claims] == [
        "for every gradient |g| <= 1",
        "for every gradient |g| <= 1e-06",
    ]


def test_a_bound_that_is_too_small_for_its_group_is_found_out(native: dict[str, Any]) -> None:
    """The audit takes each tensor's bound: with the others' it would not hold."""
    state = compressed(native, grad_bound=[1e-6, 1e-6], tolerance=0.003)
    assert audit(state, native).holds

    wider = replace(state, gradient_bound=type(state.gradient_bound)(1.0))
    assert not audit(wider, native).holds


def test_a_file_says_which_bound_is_whose(native: dict[str, Any]) -> None:
    state = compressed(native, grad_bound=[math.inf, 0.5])
    content = to_bytes(state)
    again = from_bytes(content)
    said, inside, _ = read_independently(content)

    assert said["gradient_bound"] == "0.5"
    assert [entry.get("gradient_bound") for entry in inside["tensors"]] == ["inf", None]
    assert [again.claim_for(tensor).gradient_bound.value for tensor in again.tensors] == [math.inf, 0.5]
    assert differences(recover(again), recover(state)) == []
    assert to_bytes(again) == content


def test_equal_bounds_are_one(native: dict[str, Any]) -> None:
    assert to_bytes(compressed(native, grad_bound=[1.0, 1.0])) == to_bytes(compressed(native, grad_bound=1.0))


def test_the_groups_of_several_optimizers_are_counted_in_order(native: dict[str, Any]) -> None:
    two = {"discriminator": native, "generator": sample("plain_adamw_foreach")}
    state = compressed(two, grad_bound=[1.0, 2.0, 3.0])

    bounds = {(tensor.place[0], tensor.key): state.claim_for(tensor).gradient_bound.value for tensor in state.tensors}
    assert bounds["discriminator", 0] == 1.0
    assert bounds["discriminator", 1] == 2.0
    assert {bound for (place, _), bound in bounds.items() if place == "generator"} == {3.0}


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ([], "grad-bound is 0 numbers, and there are 2 param_groups"),
        ([1.0], "grad-bound is 1 numbers"),
        ([1.0, 1.0, 1.0], "grad-bound is 3 numbers"),
        ([1.0, 0.0], "expected a positive number, or inf"),
        ([1.0, math.nan], "expected a positive number, or inf"),
        ([1.0, 1e30], "above the overflow limit"),
    ],
)
def test_other_bounds_are_refused(native: dict[str, Any], bounds: list[float], says: str) -> None:
    with pytest.raises(InvalidClaimError, match=says):
        compressed(native, grad_bound=bounds)
