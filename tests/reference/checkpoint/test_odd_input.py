"""Odd but valid states: what the guard does not cover is stored exactly, bit for bit, and counted."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.checkpoint.states import compressed, differences, raw, state_of
from tests.strategies import floats_of, wild
from torch import Tensor

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.reference.checkpoint import GuardedState, recover
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.floats import bits_of, from_bits, hex_of
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT

INF = math.inf


def around_the_file(native: dict[str, Any], **choices: object) -> tuple[GuardedState, dict[str, Any]]:
    """What compressing gives, and what is recovered from the file."""
    state = compressed(native, **choices)
    return state, recover(from_bytes(to_bytes(state)))


def tensor_of(bits: list[int]) -> Tensor:
    return torch.from_numpy(floats_of(bits).copy())


#: For each reason: pairs of bits (m, v) that are escaped for it, whatever the tolerance.
ODD = {
    "NaN or infinity": [
        (0x7FC00000, 0x3F800000),  # NaN
        (0x7F800001, 0x3F800000),  # signalling
        (0xFFC12345, 0x3F800000),  # negative, with a payload
        (0x3F800000, 0x7FC00001),
        (0x7FC00002, 0xFFC00003),
        (0x7F800000, 0x3F800000),  # infinity
        (0xFF800000, 0x3F800000),
        (0x3F800000, 0x7F800000),
        (0x00000000, 0xFF800000),
    ],
    "negative second moment": [
        (0x3F800000, 0xBF800000),
        (0, 0x80000001),
        (0x3F800000, 0x80000000),
        (0x80000000, 0x80000000),
    ],
    "minus zero": [(0x80000000, 0x3F800000), (0x80000000, 0)],
    "outside the guard's range": [
        (bits_of(LARGEST_MOMENT) + 1, 0x3F800000),
        (bits_of(-LARGEST_MOMENT) + 1, 0x3F800000),
        (0x3F800000, bits_of(LARGEST_SECOND_MOMENT) + 1),
        (0x7F7FFFFF, 0x7F7FFFFF),
    ],
}


@pytest.mark.parametrize(("reason", "pairs"), ODD.items(), ids=ODD)
def test_what_the_guard_does_not_cover_is_stored_exactly_and_counted(reason: str, pairs: list[tuple[int, int]]) -> None:
    ordinary = [(bits_of(1e-4), bits_of(1e-7))] * 3
    m, v = (tensor_of([pair[i] for pair in (*ordinary, *pairs)]) for i in (0, 1))

    state, recovered = around_the_file(state_of((m, v)), tolerance=1e6)

    (tensor,) = state.tensors
    assert tensor.reasons == {reason: len(pairs)}
    assert tensor.escaped.tolist() == [False] * 3 + [True] * len(pairs)
    assert (tensor.m_codes[3:] == ESCAPE).all()
    assert not tensor.v_codes[3:].any()
    assert state.escapes == len(pairs)
    for before, after in ((m, recovered["state"][0]["exp_avg"]), (v, recovered["state"][0]["exp_avg_sq"])):
        assert raw(before)[12:] == raw(after)[12:]


def test_each_coordinate_is_counted_once_for_the_first_reason() -> None:
    bits = [
        (0x7FC00000, 0x80000000),
        (0x80000000, 0x80000000),
        (0x80000000, 0x7F7FFFFF),
        (0x7F7FFFFF, 0x3F800000),
        (0x3F800123, 0),
    ]
    m, v = (tensor_of([pair[i] for pair in bits]) for i in (0, 1))

    (tensor,) = compressed(state_of((m, v)), tolerance=1e-30).tensors

    assert tensor.reasons == {
        "NaN or infinity": 1,
        "negative second moment": 1,
        "minus zero": 1,
        "outside the guard's range": 1,
        "not within tolerance": 1,
    }


@pytest.mark.parametrize("tolerance", [1e-30, 0.01, 1e6])
def test_wild_states_come_back_exactly_or_guarded(tolerance: float, rng: np.random.Generator, budget: int) -> None:
    count = 20_000 * budget
    m, v = (torch.from_numpy(wild(count, rng)) for _ in range(2))

    state, recovered = around_the_file(state_of((m, v)), tolerance=tolerance)

    (tensor,) = state.tensors
    escaped = tensor.escaped
    entry = recovered["state"][0]
    for before, after in ((m, entry["exp_avg"]), (v, entry["exp_avg_sq"])):
        assert torch.equal(before[escaped].view(torch.int32), after[escaped].view(torch.int32))
        assert bool(after[~escaped].isfinite().all())
        zero = (before == 0) & ~escaped
        assert not bool(after[zero].view(torch.int32).any()), "zero is plus zero"
    assert sum(tensor.reasons.values()) == int(escaped.sum())
    odd = ~(m.isfinite() & v.isfinite()) | torch.signbit(v) | ((m == 0) & torch.signbit(m))
    assert not bool((odd & ~escaped).any())


@given(st.lists(st.tuples(binary32(), binary32()), min_size=1, max_size=8), st.sampled_from((1e-30, 0.01, 1e6)))
def test_any_state_comes_back_exactly_or_guarded(pairs: list[tuple[float, float]], tolerance: float) -> None:
    m, v = (tensor_of([bits_of(pair[i]) for pair in pairs]) for i in (0, 1))

    state, recovered = around_the_file(state_of((m, v)), tolerance=tolerance)

    (tensor,) = state.tensors
    for i in tensor.escaped.nonzero().flatten().tolist():
        entry = recovered["state"][0]
        found = (int(entry[moment].view(torch.int32)[i]) & 0xFFFFFFFF for moment in ("exp_avg", "exp_avg_sq"))
        assert tuple(found) == tuple(map(bits_of, pairs[i])), [hex_of(x) for x in pairs[i]]


def test_zero_states_stay_zero() -> None:
    zero = torch.zeros(70)

    state, recovered = around_the_file(state_of((zero, zero)), tolerance=1e-30)

    assert state.escapes == 0
    assert differences(recovered["state"][0]["exp_avg"], zero) == []
    assert differences(recovered["state"][0]["exp_avg_sq"], zero) == []


@pytest.mark.parametrize("count", [1, 7, 300])
def test_subnormal_states(count: int, rng: np.random.Generator) -> None:
    """Everything is far below the lowest level of any grid: the guard decides, and what it rejects stays exact."""
    bits = rng.integers(1, 0x00800000, size=(2, count), dtype=np.uint32)
    m, v = (torch.from_numpy(floats_of(row)) for row in bits)
    for tolerance in (0.01, 1e-30):
        state, recovered = around_the_file(state_of((m, v)), tolerance=tolerance)
        (tensor,) = state.tensors
        assert set(tensor.reasons) <= {"not within tolerance"}
        for before, name in ((m, "exp_avg"), (v, "exp_avg_sq")):
            after = recovered["state"][0][name]
            assert torch.equal(before[tensor.escaped], after[tensor.escaped])


def test_empty_and_0d_moments() -> None:
    empty, scalar = torch.empty(0), torch.tensor(1e-4)
    native = state_of((empty, empty), (torch.empty(3, 0, 2), torch.empty(3, 0, 2)), (scalar, scalar * scalar))

    state, recovered = around_the_file(native)

    assert [(kept.key, kept.numel, kept.because) for kept in state.kept] == [
        (0, 0, "no coordinates"),
        (1, 0, "no coordinates"),
    ]
    assert [(tensor.key, tensor.shape, tensor.numel) for tensor in state.tensors] == [(2, (), 1)]
    for key in (0, 1):
        assert differences(native["state"][key], recovered["state"][key]) == []
    assert recovered["state"][2]["exp_avg"].shape == ()


def test_parameters_without_state_keep_their_place() -> None:
    native = state_of((torch.ones(3), torch.ones(3)), (torch.ones(4), torch.ones(4)))
    native["param_groups"][0]["params"] = [5, 0, 7, 1]
    native["param_groups"].append({**native["param_groups"][0], "params": [9]})

    state, recovered = around_the_file(native)

    assert [tensor.key for tensor in state.tensors] == [0, 1]
    assert differences(native["param_groups"], recovered["param_groups"]) == []
    assert list(recovered["state"]) == [0, 1]


@pytest.mark.parametrize(
    ("dtypes", "because"),
    [
        ((torch.bfloat16, torch.bfloat16), "bfloat16 moments"),
        ((torch.float16, torch.float16), "float16 moments"),
        ((torch.float64, torch.float64), "float64 moments"),
        ((torch.float32, torch.float64), "float64 moments"),
        ((torch.bfloat16, torch.float32), "bfloat16 moments"),
        ((torch.complex64, torch.complex64), "complex64 moments"),
        ((torch.int32, torch.float32), "int32 moments"),
        ((torch.bool, torch.bool), "bool moments"),
    ],
    ids=str,
)
def test_moments_of_another_dtype_are_kept_whole(dtypes: tuple[torch.dtype, torch.dtype], because: str) -> None:
    m, v = (torch.tensor([1.0, 0.5, 3.0]).to(dtype) for dtype in dtypes)
    native = state_of((m, v), (torch.ones(2), torch.ones(2)))

    state, recovered = around_the_file(native)

    assert [(kept.key, kept.where, kept.numel, kept.because) for kept in state.kept] == [(0, "state[0]", 3, because)]
    assert differences(native["state"][0], recovered["state"][0]) == []
    assert state.coordinates == 5


def test_nan_payloads_survive_in_kept_moments() -> None:
    bits = torch.tensor([0x7FC1, -0x3F, -32768], dtype=torch.int16)  # NaN, negative NaN with a payload, minus zero
    half = bits.view(torch.bfloat16)
    doubles = torch.tensor([0x7FF0000000000001, -1], dtype=torch.int64).view(torch.float64)
    native = state_of((half, half), (doubles, doubles))

    _, recovered = around_the_file(native)

    assert differences(native["state"], recovered["state"]) == []


@pytest.mark.parametrize(
    "third", [None, torch.ones(4), torch.ones(3, dtype=torch.float64), torch.ones(6)[::2], 1.0], ids=repr
)
def test_amsgrad_without_a_third_moment_like_the_second_is_kept_whole(third: object) -> None:
    native = state_of((torch.ones(3), torch.ones(3)), amsgrad=True)
    if third is not None:
        native["state"][0]["max_exp_avg_sq"] = third

    state, recovered = around_the_file(native)

    assert [kept.because for kept in state.kept] == ["amsgrad without its third moment"]
    assert differences(native, recovered) == []


def test_third_moments_that_no_theorem_speaks_about_are_escaped() -> None:
    unusual = torch.tensor([1.0, math.nan, math.inf, -1.0, -0.0, 2.0**101, 0.0, 2.0**100])
    native = state_of((torch.ones(8), torch.ones(8)), amsgrad=True)
    native["state"][0]["max_exp_avg_sq"] = unusual

    state, recovered = around_the_file(native)

    (tensor,) = state.tensors
    assert tensor.escaped.tolist() == [False, True, True, True, True, True, False, False]
    assert tensor.reasons == {"third moment outside the guard's range": 5}
    assert differences(native["state"][0]["max_exp_avg_sq"], recovered["state"][0]["max_exp_avg_sq"]) == []


LAYOUTS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "expanded": lambda: (torch.ones(1).expand(6), torch.ones(1).expand(6)),
    "every second": lambda: (torch.arange(12.0)[::2], torch.arange(12.0)[::2]),
    "a column": lambda: (torch.ones(4, 3)[:, 0], torch.ones(4, 3)[:, 0]),
    "overlapping": lambda: (
        torch.arange(9.0).as_strided((3, 3), (1, 2)),
        torch.arange(9.0).as_strided((3, 3), (1, 2)),
    ),
    "m transposed": lambda: (torch.ones(3, 4).t(), torch.ones(4, 3)),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_moments_that_are_not_dense_or_not_alike_are_kept_whole(make: Callable[[], tuple[Tensor, Tensor]]) -> None:
    native = state_of(make())

    state, recovered = around_the_file(native)

    assert [kept.because for kept in state.kept] == ["memory layout"]
    assert differences(native, recovered) == []


def test_a_fused_group_guards_only_what_is_contiguous() -> None:
    image = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    native = state_of((image, image), (torch.ones(3), torch.ones(3)), fused=True)

    state, recovered = around_the_file(native)

    assert [(kept.key, kept.because) for kept in state.kept] == [(0, "not contiguous with fused=True")]
    assert [tensor.key for tensor in state.tensors] == [1]
    assert differences(native["state"][0], recovered["state"][0]) == []


def test_dense_layouts_are_guarded() -> None:
    buffer = torch.arange(1.0, 101.0)
    view = buffer[20:26]  # of one flat buffer, as some trainers keep them
    singular = torch.ones(4, 1, 3).as_strided((4, 1, 3), (3, 77, 1))
    native = state_of((view, view), (singular, singular), (torch.ones(3, 4).t(), torch.ones(3, 4).t()))

    state, recovered = around_the_file(native, tolerance=1e-30)

    assert state.kept == ()
    for tensor in state.tensors:
        for moment in ("exp_avg", "exp_avg_sq"):
            assert differences(native["state"][tensor.key][moment], recovered["state"][tensor.key][moment]) == []


@pytest.mark.parametrize(
    "step",
    [3, 3.0, torch.tensor(3.0), torch.tensor(3), torch.tensor([3.0]), torch.tensor(3.0, dtype=torch.float64), 0, 2**24],
    ids=str,
)
def test_every_kind_of_step_is_read_and_kept(step: object) -> None:
    native = state_of((torch.ones(3), torch.ones(3)), step=step)

    state, recovered = around_the_file(native)

    expected = {0: 1.0, 2**24: 2.0**24}.get(step if isinstance(step, int) else 3, 4.0)
    assert [tensor.next_step for tensor in state.tensors] == [expected]
    assert differences(native["state"][0]["step"], recovered["state"][0]["step"]) == []


def test_what_else_an_entry_or_a_group_holds_is_kept() -> None:
    native = state_of((torch.ones(3), torch.ones(3)), name="head", initial_lr=-0.0, lr=torch.tensor(1e-3))
    native["state"][0]["extra"] = {"list": [1, (2.5, None), "text"], "tensor": torch.tensor([1, 2], dtype=torch.int8)}
    native["note"] = [True, b"bytes"]

    _, recovered = around_the_file(native)

    for part in ("param_groups", "note"):
        assert differences(native[part], recovered[part]) == []
    assert differences(native["state"][0]["extra"], recovered["state"][0]["extra"]) == []
    assert list(native) == list(recovered)


def test_names_of_parameters_are_in_the_messages() -> None:
    native = state_of((torch.full((3,), math.nan), torch.ones(3)), param_names=["bläcks.0.weight"])

    state, _ = around_the_file(native)

    assert [tensor.where for tensor in state.tensors] == ["state[0] (bläcks.0.weight)"]
    assert [tensor.where for tensor in from_bytes(to_bytes(state)).tensors] == ["state[0] (bläcks.0.weight)"]


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    native = state_of((torch.ones(3), torch.ones(3)), (torch.ones(4), torch.ones(4)), (torch.empty(0), torch.empty(0)))

    compressed(native, progress=lambda done, total: seen.append((done, total)))

    assert seen[-1] == (7, 7)
    assert seen == sorted(seen)


def test_the_largest_finite_values_do_not_overflow_anything() -> None:
    large = torch.tensor([from_bits(0x7F7FFFFF), -from_bits(0x7F7FFFFF), INF, 1.0])

    state, recovered = around_the_file(state_of((large, large.abs())), grad_bound=INF)

    (tensor,) = state.tensors
    assert tensor.reasons["outside the guard's range"] == 2
    assert differences(recovered["state"][0]["exp_avg"][:3], large[:3]) == []
