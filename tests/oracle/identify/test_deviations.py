"""Kernels with a planted fault are no member of the family, and the quantity at fault is the one that is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.oracle.identify import planted
from tests.oracle.identify.simulated import QUICK, subject

from guarded_moments.oracle.identify import (
    Feature,
    FunctionSubject,
    Identification,
    Quantity,
    as_json,
    identify,
    in_words,
)
from guarded_moments.oracle.identify.inputs import scan_roots
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.implementations import IMPLEMENTATIONS

FIRST, SECOND, PARAMETER = Quantity.FIRST_MOMENT, Quantity.SECOND_MOMENT, Quantity.PARAMETER


def found_of(kernel: Callable[..., Any]) -> Identification:
    return identify(FunctionSubject(kernel, "a kernel"), QUICK)


def test_the_sound_twin_of_these_kernels_is_named() -> None:
    found = found_of(planted.sound)
    assert {known.name.rpartition("/")[2] for known, _ in found.named} == {"single", "foreach"}
    assert set(found.skipped) == set(Feature)


@pytest.mark.parametrize(
    ("kernel", "unlike"),
    [
        (planted.eps_inside_the_root, [PARAMETER]),
        (planted.without_bias_correction, [PARAMETER]),
        (planted.in_binary64, [FIRST, SECOND, PARAMETER]),
        (planted.with_a_reciprocal_root, [PARAMETER]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_not_of_the_family(kernel: Callable[..., Any], unlike: list[Quantity]) -> None:
    found = found_of(kernel)
    assert not found.exact
    assert not found.named
    assert list(found.unlike) == unlike
    first = found.differences[0]
    assert first.quantity is unlike[0]
    assert 0 < first.differing <= first.elements
    assert bits_of(first.expected) != bits_of(first.observed)
    text = "\n".join(in_words(found))
    assert f"{unlike[0].value} follows no op model" in text
    assert "NOT IDENTIFIED  nearest is torch-2.1" in text


def test_the_trace_ends_in_what_the_op_model_expects_and_starts_at_the_example() -> None:
    first = found_of(planted.eps_inside_the_root).differences[0]
    assert bits_of(first.trace[-1].result) == bits_of(first.expected)
    assert first.trace[-1].formula == first.operation
    p, g, m, v = (torch.tensor([first.example[name]], dtype=torch.float32) for name in ("p", "g", "m", "v"))
    setting = first.setting
    betas = (setting.beta1, setting.beta2)
    again = planted.eps_inside_the_root(p, g, m, v, setting.step, setting.lr, betas, setting.eps)[0]
    assert bits_of(float(again)) == bits_of(first.observed)


@pytest.mark.parametrize(
    ("kernel", "quantities"),
    [(planted.with_rounded_betas, [FIRST, SECOND]), (planted.with_one_constant_rounded, [SECOND])],
)
def test_constants_formed_by_two_rules_are_not_of_the_family(
    kernel: Callable[..., Any], quantities: list[Quantity]
) -> None:
    found = found_of(kernel)
    assert not found.exact
    assert not found.unlike, "each quantity by itself follows an op model"
    assert not found.rules, "but not with constants formed by one rule"
    told = [text for text in found.nearest.altered if text.startswith("constants of")]
    rounded = "formed as HOST, betas as a double, rounded to binary32 first"
    assert told == [f"constants of {quantity.value} are {rounded}" for quantity in quantities]


def test_a_fault_on_rare_values_is_found() -> None:
    """What no candidate explains in the pool is shown to every position."""
    found = found_of(planted.skipping_overflow)
    assert found.unlike == (PARAMETER,)
    assert found.differences[0].differing == 0, "no value as training leaves it is concerned"


def test_a_fault_of_options_together_is_found_in_whole_steps() -> None:
    found = found_of(planted.otherwise_with_both_options)
    assert not found.exact
    assert not found.named
    assert not found.unlike, "each option by itself is sound"
    assert found.failure is not None
    assert found.failure.setting == QUICK.together[0]
    assert found.failure.row == "p"
    assert "whole steps differ in" in "\n".join(in_words(found))


def test_regions_that_no_known_kernel_has_are_found_from_the_data() -> None:
    found = found_of(planted.every_third_uncontracted)
    assert found.exact
    assert not found.named
    assert found.nearest.altered == ("v' changes at other elements",)
    where = [entry["elements"] for entry in as_json(found)["quantities"] if entry["quantity"] == "second_moment"]
    assert set(where) == {"elements i with i % 3 in [0]", "elements i with i % 3 in [1, 2]"}


def test_options_that_do_nothing_are_reported_as_such() -> None:
    found = found_of(planted.ignoring_its_options)
    text = "\n".join(in_words(found))
    assert text.count("as without the option") == 4  # both places of weight decay, maximize, vmax
    assert "the root of v': vmax' is not used" in text
    assert not found.skipped
    assert not found.named, "torch's options do something"
    assert found.nearest.altered == (
        "weight_decay changes nothing",
        "v_max changes nothing",
        "maximize changes nothing",
    )


def test_a_platform_whose_root_is_correct_leaves_both_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchBinary32, "platform_sqrt", TorchBinary32.sqrt)
    scan_roots.cache_clear()
    try:
        found = identify(subject(IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"]), QUICK)
        text = "\n".join(in_words(found))
        assert found.exact
        assert "square_root, all other elements: CORRECT = PLATFORM" in text
        assert "torch.sqrt is the correctly rounded root on all 262,144 values scanned on this machine" in text
    finally:
        scan_roots.cache_clear()
