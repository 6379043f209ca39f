"""The exact guard: branch and bound over gradients for one coordinate after the other, compiled.

The same formulas as the vectorised search (`cells`), in `CompiledBinary64`; what differs is only the order of work: one
coordinate's cells at a time, on a small stack, so that most coordinates end after their first cells.

Claimed: CLEARED means that no gradient of the claim can violate it, the rounding of both trajectories and of this
evaluation included.  EXCEEDED comes with a gradient whose real-number deviation is, as far as binary64 can tell, above
what the slack leaves: the coordinate violates the claim or is within the slack of it.  SPENT means that the budget of
cells ran out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.compiled_binary32 import jit
from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.guard.cells import End, make_end, make_terms, make_upper, make_value
from guarded_moments.reference.guard.closed_form import (
    bound_inflation,
    closed_form_guard,
    in_domain,
    make_trajectory_slack,
)
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import CUT, FIRST_ENDS, LONG, States, cleared, largest_gradient

#: Cells of one coordinate after which it is given up.
MAX_CELLS = 20_000
#: Coordinates of one call from which compiling pays, and those searched together in torch below it.
WORTH_COMPILING = 1 << 20
_TORCH_BLOCK = 1 << 12
_STACK = 512  #: cells waiting at a time; depth-first, each split adds one


class Outcome(IntEnum):
    """What the search found out about a coordinate."""

    CLEARED = 0
    EXCEEDED = 1
    SPENT = 2


class Search(NamedTuple):
    """One entry per coordinate."""

    outcome: Tensor  #: int8, of `Outcome`
    gradient: Tensor  #: float32: where it was exceeded


def search(constants: GuardConstants[float], states: States) -> Search:
    """Search coordinates of one tensor; see the module's claim.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        states: coordinates in the guard's domain, float32 on CPU, shape (n,).
    """
    outcome = np.empty(len(states.m), dtype=np.int8)
    gradient = np.zeros(len(states.m), dtype=np.float32)
    held = GuardConstants(*(np.float64(value) for value in constants))
    arrays = (moment.contiguous().numpy() for moment in states)
    _compiled()(held, np.float32(largest_gradient(constants)), bound_inflation(), *arrays, outcome, gradient)
    return Search(torch.from_numpy(outcome), torch.from_numpy(gradient))


def exact_guard(constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """Where the claim is guaranteed, by the closed form or else by the search: a bool tensor.

    Arguments as `closed_form_guard`.  Few coordinates are searched in plain torch, many in compiled code: its
    compilation takes as long as `WORTH_COMPILING` coordinates.
    """
    accepted = closed_form_guard(constants, m, v, m_hat, v_hat)
    judged = (~accepted & in_domain(m, v) & in_domain(m_hat, v_hat)).nonzero().flatten()
    states = States(m, v, m_hat, v_hat).select(judged)
    if len(judged) >= WORTH_COMPILING:
        accepted[judged] = search(constants, states).outcome == Outcome.CLEARED
        return accepted
    for begin in range(0, len(judged), _TORCH_BLOCK):
        accepted[judged[begin : begin + _TORCH_BLOCK]] = cleared(constants, states.slice(begin, begin + _TORCH_BLOCK))
    return accepted


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., None]:  # noqa: C901, PLR0915 - one loop over a stack; numba's parts live inside
    """Compile the loop over coordinates; a few seconds, once a process."""
    op: Any = CompiledBinary64()
    make: tuple[Any, ...] = (make_terms, make_end, make_value, make_upper, make_trajectory_slack)
    terms_of, end_at, value_at, upper_of, slack_at = (builder(op, jit) for builder in make)
    ends = np.array(FIRST_ENDS[1:], dtype=np.float64)
    cleared, exceeded, spent = int(Outcome.CLEARED), int(Outcome.EXCEEDED), int(Outcome.SPENT)

    @jit
    def allowed_for(k, inflation, terms, m, m_hat):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        native, recovered = np.sqrt(k.radicand * terms.v), np.sqrt(k.radicand * terms.v_hat)
        slack = slack_at(k, m, 1.0 / (native + k.eps)) + slack_at(k, m_hat, 1.0 / (recovered + k.eps))
        return (k.threshold - (k.step * slack + 2.0 * k.slack_floor) * inflation) / k.step / inflation

    @jit
    def middle_of(low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        if low == 0.0:
            return np.float64(np.float32(0.5 * high))
        return np.float64(np.float32(CUT * low if high > LONG * low else 0.5 * (low + high)))

    @numba.njit(error_model="numpy")
    def loop(k, limit, inflation, m, v, m_hat, v_hat, outcome, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, C901 - typed by numba
        lows, highs = np.empty((_STACK, 3)), np.empty((_STACK, 3))
        for i in range(len(m)):
            terms = terms_of(k, np.float64(m[i]), np.float64(v[i]), np.float64(m_hat[i]), np.float64(v_hat[i]))
            allowed = allowed_for(k, inflation, terms, np.float64(m[i]), np.float64(m_hat[i]))
            scale = (np.sqrt(k.radicand * min(terms.v, terms.v_hat)) + k.eps) * k.gap_cap
            low = end_at(k, terms.v, terms.v_hat, terms.gap, 0.0)
            plus, minus = value_at(k, terms.shift, terms.pull, low)
            outcome[i] = cleared
            if max(plus, minus) > allowed:
                outcome[i] = exceeded
                continue
            top = 0
            for j in range(len(ends) + 1):
                g = np.float64(limit if j == len(ends) else min(np.float32(ends[j] * scale), limit))
                if g <= low.g:
                    continue
                high = end_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, high)
                if max(plus, minus) > allowed:
                    outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)
                    break
                if upper_of(k, terms.shift, terms.pull, low, high) > allowed:
                    lows[top, 0], lows[top, 1], lows[top, 2] = low.g, low.reciprocal, low.difference
                    highs[top, 0], highs[top, 1], highs[top, 2] = high.g, high.reciprocal, high.difference
                    top += 1
                low = high
            cells = 0
            while top > 0 and outcome[i] == cleared:
                top -= 1
                cells += 1
                low = End(lows[top, 0], lows[top, 1], lows[top, 2])
                high = End(highs[top, 0], highs[top, 1], highs[top, 2])
                g = middle_of(low.g, high.g)
                if g <= low.g or g >= high.g:  # neighbours: nothing is left to split
                    outcome[i], gradient[i] = exceeded, np.float32(low.g)
                    break
                if cells > MAX_CELLS or top + 2 > _STACK:
                    outcome[i] = spent
                    break
                cut = end_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, cut)
                if max(plus, minus) > allowed:
                    outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)
                    break
                for half in range(2):
                    a, b = (low, cut) if half == 0 else (cut, high)
                    if upper_of(k, terms.shift, terms.pull, a, b) > allowed:
                        lows[top, 0], lows[top, 1], lows[top, 2] = a.g, a.reciprocal, a.difference
                        highs[top, 0], highs[top, 1], highs[top, 2] = b.g, b.reciprocal, b.difference
                        top += 1

    result: Callable[..., None] = loop
    return result
