"""The compiled guard decides as the reference even where the last bit of a bound decides."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch
from tests.reference.kernels.inputs import constants, trained

from guarded_moments.reference.arithmetic import compiled_operations
from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.guard import GuardConstants, closed_form_deviation
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.kernels import guarding
from guarded_moments.reference.kernels.guarding import compiled_guard

COUNT = 400


def decided_otherwise(judge: Callable[..., None], rng: np.random.Generator) -> int:
    """Of coordinates whose bound is the threshold, or just above it: how many are not decided as they must be."""
    k = constants()
    m, v = (moment.numpy() for moment in trained(rng, COUNT))
    m_hat, v_hat = m * np.float32(1.02), v * np.float32(0.99)
    wrong, rejected = 0, np.empty(1, dtype=np.uint8)
    bounds = closed_form_deviation(k, *(torch.from_numpy(x) for x in (m, v, m_hat, v_hat))).numpy()
    for i in np.flatnonzero(m):
        bound = float(bounds[i])
        for threshold, expected in ((bound, 0), (np.nextafter(bound, 0), 1)):
            held = GuardConstants(*(np.float64(x) for x in k._replace(threshold=threshold)))
            judge(held, bound_inflation(), *(x[i : i + 1] for x in (m, v, m_hat, v_hat)), rejected)
            wrong += int(rejected[0] != expected)
    return wrong


def test_every_bit_of_the_bound_is_the_references(rng: np.random.Generator) -> None:
    assert decided_otherwise(compiled_guard(), rng) == 0


def contracting(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - numba's
    """Compile so that a product may be fused into a sum."""
    return numba.njit(error_model="numpy", forceinline=True, fastmath={"contract"})(function)


@guarding.inlined
def by_reciprocal(a: Any, b: Any) -> Any:  # noqa: ANN401 - a binary64 scalar, typed by numba
    return a * (1.0 / b)


def test_a_contracted_product_is_caught(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded."""
    for name in ("add", "mul"):
        monkeypatch.setattr(
            CompiledBinary64, name, staticmethod(contracting(getattr(compiled_operations, name).py_func))
        )
    monkeypatch.setattr(guarding, "inlined", contracting)
    assert decided_otherwise(compiled_guard.__wrapped__(), rng) > 0


def test_an_approximate_division_is_caught(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded."""
    monkeypatch.setattr(CompiledBinary64, "div", staticmethod(by_reciprocal))
    assert decided_otherwise(compiled_guard.__wrapped__(), rng) > 0
