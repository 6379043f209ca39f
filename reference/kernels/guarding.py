"""The guard over a block: the closed form's one source, compiled into a loop that LLVM vectorises.

Claimed: the decisions of `closed_form_guard` bit for bit: the same binary64 operations in the same order, each
correctly rounded in both.  The domain is tested on the bits, where one unsigned comparison says "not negative, not
NaN, not too large".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np

from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.closed_form import make_deviation_bound
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT

_WITHOUT_SIGN = np.uint32(0x7FFF_FFFF)
_MINUS_ZERO = np.uint32(0x8000_0000)
_LARGEST_MOMENT_BITS = np.uint32(bits_of(LARGEST_MOMENT))
_LARGEST_SECOND_MOMENT_BITS = np.uint32(bits_of(LARGEST_SECOND_MOMENT))


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of scalars into its callers: a call that is left in a loop keeps it from being vectorised."""
    compiled: Callable[..., Any] = numba.njit(error_model="numpy", forceinline=True)(function)
    return compiled


@numba.njit(error_model="numpy")
def mark_outside_domain(m_bits: Any, v_bits: Any, rejected: Any) -> None:  # noqa: ANN401 - typed by numba
    """Add to `rejected`, uint8, where a state is not one that the guard's theorem speaks about (see `in_domain`)."""
    for i in range(len(rejected)):
        magnitude = np.uint32(m_bits[i] & _WITHOUT_SIGN)
        inside = (
            (magnitude <= _LARGEST_MOMENT_BITS)
            & (m_bits[i] != _MINUS_ZERO)
            & (v_bits[i] <= _LARGEST_SECOND_MOMENT_BITS)
        )
        rejected[i] |= np.uint8(not inside)


@lru_cache(maxsize=1)
def compiled_guard() -> Callable[..., None]:
    """The loop `judge(constants, inflation, m, v, m_hat, v_hat, rejected)`; `rejected`, uint8, by the bound alone."""
    op: Any = CompiledBinary64()
    bound_of = make_deviation_bound(op, inlined)

    @numba.njit(error_model="numpy")
    def judge(k, inflation, m, v, m_hat, v_hat, rejected):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        for i in range(len(m)):
            bound = bound_of(k, np.float64(m[i]), np.float64(v[i]), np.float64(m_hat[i]), np.float64(v_hat[i]))
            same = (m[i] == m_hat[i]) & (v[i] == v_hat[i])
            rejected[i] = np.uint8(not ((bound * inflation <= k.threshold) | same))

    result: Callable[..., None] = judge
    return result
