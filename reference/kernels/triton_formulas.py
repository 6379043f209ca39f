"""The guard's and the step's formulas as functions that Triton's kernels call, constants read from an array.

Claimed: they are the closed form's one source and `adam`'s, over `TritonBinary64` and `TritonBinary32`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from guarded_moments.reference.adam import (
    Jit,
    Scalars,
    StepOptions,
    as_is,
    make_from_root,
    make_until_root,
    make_update,
)
from guarded_moments.reference.arithmetic.triton_operations import TritonBinary32, TritonBinary64, jit
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.guard.closed_form import bound_inflation, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.op_models import OpModel, SquareRoot


@cache
def make_judge(*, interpreted: bool) -> Callable[..., Any]:
    """Build `judge(k_ptr, m, v, m_hat, v_hat)`: bool, by the closed form; `k` are its constants, then the inflation."""
    make: Jit = as_is if interpreted else jit
    op: Any = TritonBinary64(interpreted=interpreted)
    bound_of = make_deviation_bound(op, make)

    def judge(k_ptr, m, v, m_hat, v_hat):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        k = GuardConstants(
            tl.load(k_ptr),
            tl.load(k_ptr + 1),
            tl.load(k_ptr + 2),
            tl.load(k_ptr + 3),
            tl.load(k_ptr + 4),
            tl.load(k_ptr + 5),
            tl.load(k_ptr + 6),
            tl.load(k_ptr + 7),
            tl.load(k_ptr + 8),
            tl.load(k_ptr + 9),
            tl.load(k_ptr + 10),
            tl.load(k_ptr + 11),
            tl.load(k_ptr + 12),
            tl.load(k_ptr + 13),
            tl.load(k_ptr + 14),
            tl.load(k_ptr + 15),
        )
        bound = bound_of(k, m.to(tl.float64), v.to(tl.float64), m_hat.to(tl.float64), v_hat.to(tl.float64))
        return (bound * tl.load(k_ptr + 16) <= k.threshold) | ((m == m_hat) & (v == v_hat))

    result: Callable[..., Any] = make(judge)
    return result


def _scalars_at(k_ptr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return Scalars(
        tl.load(k_ptr),
        tl.load(k_ptr + 1),
        tl.load(k_ptr + 2),
        tl.load(k_ptr + 3),
        tl.load(k_ptr + 4),
        tl.load(k_ptr + 5),
        tl.load(k_ptr + 6),
        tl.load(k_ptr + 7),
        tl.load(k_ptr + 8),
        tl.load(k_ptr + 9),
        tl.load(k_ptr + 10),
        tl.load(k_ptr + 11),
    )


def _arithmetic(model: OpModel, *, interpreted: bool) -> tuple[Any, Jit]:
    if model.square_root is SquareRoot.PLATFORM:
        raise UnsupportedError(f"{model.name}: its square root is a CPU's vector library's, which Triton has not")
    return TritonBinary32(interpreted=interpreted), as_is if interpreted else jit


@cache
def make_update_at(model: OpModel, options: StepOptions, *, interpreted: bool) -> Callable[..., Any]:
    """Build `update(k_ptr, m, v, g)` of an op model, `k` its `Scalars`.

    Raises:
        UnsupportedError: its root is a platform's.
    """
    op, make = _arithmetic(model, interpreted=interpreted)
    update_of, scalars_at = make_update(op, model, options, make), make(_scalars_at)

    def update(k_ptr, m, v, g):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return update_of(m, v, g, scalars_at(k_ptr))

    result: Callable[..., Any] = make(update)
    return result


@cache
def make_step_at(model: OpModel, options: StepOptions, *, interpreted: bool) -> Callable[..., Any]:
    """Build `step(k_ptr, p, g, m, v) -> (p, m, v)`, without amsgrad, likewise."""
    op, make = _arithmetic(model, interpreted=interpreted)
    until_root, from_root = make_until_root(op, model, options, make), make_from_root(op, model, make)
    root_of, scalars_at = op.sqrt, make(_scalars_at)

    def step(k_ptr, p, g, m, v):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        k = scalars_at(k_ptr)
        kept, new_m, new_v = until_root(p, g, m, v, k)
        return from_root(kept, new_m, root_of(new_v), k), new_m, new_v

    result: Callable[..., Any] = make(step)
    return result


def constants_array(constants: GuardConstants[float], device: torch.device) -> Tensor:
    """What `judge` reads: float64, (17,)."""
    return torch.tensor([*constants, bound_inflation()], dtype=torch.float64, device=device)
