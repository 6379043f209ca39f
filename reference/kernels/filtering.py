"""The guard over a block, by its filter first: binary32 for all coordinates, binary64 for those that it leaves open.

What the filter leaves is gathered, so that the guard's loop has whole vectors of it too, however much that is.

Claimed: the decisions of `closed_form_guard`, the domain included: see `guard.binary32_filter` for why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np

from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.binary32_filter import make_filter
from guarded_moments.reference.guard.closed_form import bound_inflation, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.kernels.guarding import compiled_guard, inlined, mark_outside_domain
from guarded_moments.reference.kernels.marking import list_marked, make_room

#: Marks of a coordinate; `OPEN` never leaves a block's guard.
ACCEPTED, REJECTED, OPEN = np.uint8(0), np.uint8(1), np.uint8(2)

_WITHOUT_SIGN = np.uint32(0x7FFF_FFFF)
_MINUS_ZERO = np.uint32(0x8000_0000)
_ZERO = np.uint32(0)


class FilteredGuard(NamedTuple):
    """What the compiled loops need of one tensor's guard: NumPy's scalars."""

    constants: GuardConstants[Any]
    inflation: Any
    held: GuardConstants[Any]  #: the constants in binary32
    accepted: Any  #: see `guard.binary32_filter`
    rejected: Any
    largest_moment: Any  #: bits, as those below
    smallest_second_moment: Any
    second_moments: Any  #: from the smallest to the largest


class State(NamedTuple):
    """Both states of a block's coordinates, and the bits of each moment: arrays of one length."""

    m: Any
    v: Any
    m_hat: Any
    v_hat: Any
    m_bits: Any
    v_bits: Any
    m_hat_bits: Any
    v_hat_bits: Any


def filtered_guard(constants: GuardConstants[float]) -> FilteredGuard:
    """Prepare a tensor's guard."""
    found = make_filter(constants)
    least, most = (bits_of(x) for x in found.ordinary[1:])
    bits = (np.uint32(x) for x in (bits_of(found.ordinary.largest_moment), least, most - least))
    return FilteredGuard(binary64_constants(constants), np.float64(bound_inflation()), *found[:3], *bits)


@lru_cache(maxsize=1)
def compiled_filter() -> Callable[[FilteredGuard, State, Any], None]:
    """The loop `judge(guard, state, marks)`; `marks`, uint8, of every coordinate."""
    op: Any = CompiledBinary32()
    bound_of = make_deviation_bound(op, inlined)

    @numba.njit(error_model="numpy")
    def judge(guard, state, marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        m, v, m_hat, v_hat, m_bits, v_bits, m_hat_bits, v_hat_bits = state
        for i in range(len(m)):
            bound = bound_of(guard.held, m[i], v[i], m_hat[i], v_hat[i])
            least = guard.smallest_second_moment
            ordinary = (
                (np.uint32(m_bits[i] & _WITHOUT_SIGN) <= guard.largest_moment)
                & (np.uint32(m_hat_bits[i] & _WITHOUT_SIGN) <= guard.largest_moment)
                & (np.uint32(v_bits[i] - least) <= guard.second_moments)
                & (np.uint32(v_hat_bits[i] - least) <= guard.second_moments)
                & (m_bits[i] != _MINUS_ZERO)
                & (m_hat_bits[i] != _MINUS_ZERO)
            )
            same = (m[i] == m_hat[i]) & (v[i] == v_hat[i])
            zero = (m_bits[i] | v_bits[i] | m_hat_bits[i] | v_hat_bits[i]) == _ZERO
            rejects = ordinary & (bound > guard.rejected) & (not same)
            settled = rejects | zero | (ordinary & (bound <= guard.accepted))
            marks[i] = np.uint8(rejects) | np.uint8(np.uint8(not settled) << np.uint8(1))

    result: Callable[[FilteredGuard, State, Any], None] = judge
    return result


@cache
def make_block_guard(block: int) -> Callable[[FilteredGuard, State, Any], None]:
    """Build `judge(guard, state, marks)`, compiled: `REJECTED` or `ACCEPTED` of up to `block` coordinates."""
    filtering, judge, make_marks = compiled_filter(), compiled_guard(), make_room(block)

    @numba.njit(error_model="numpy")
    def settle(guard, state, marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        room = make_marks()
        for i in range(len(marks)):
            room.marks[i] = marks[i] & OPEN
        places = list_marked(room)
        count = len(places)
        moments, rejected = np.empty((4, block), np.float32), np.empty(block, np.uint8)
        for n in range(count):
            i = places[n]
            moments[0, n], moments[1, n] = state.m[i], state.v[i]
            moments[2, n], moments[3, n] = state.m_hat[i], state.v_hat[i]
        m, v, m_hat, v_hat = moments[0, :count], moments[1, :count], moments[2, :count], moments[3, :count]
        found = rejected[:count]
        judge(guard.constants, guard.inflation, m, v, m_hat, v_hat, found)
        mark_outside_domain(m.view(np.uint32), v.view(np.uint32), found)
        mark_outside_domain(m_hat.view(np.uint32), v_hat.view(np.uint32), found)
        for n in range(count):
            marks[places[n]] = found[n]

    @numba.njit(error_model="numpy")
    def judge_block(guard, state, marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        filtering(guard, state, marks)
        found = np.uint8(0)
        for i in range(len(marks)):
            found |= marks[i]
        if found >= OPEN:
            settle(guard, state, marks)

    result: Callable[[FilteredGuard, State, Any], None] = judge_block
    return result
