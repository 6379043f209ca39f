"""Where the worst of a coordinate lies: branch and bound on its real-number deviation, compiled, one after the other.

The formulas are those of `reference.guard.cells` and `slopes` in `CompiledBinary64`.  Two loops use them:

* `enclose` narrows the supremum of the deviation in real arithmetic, the likeliest cells first;
* `slivers_above` lists the ranges of gradients at which the bit-exact deviation may exceed a given one.

Claimed: the supremum of the real-number deviation over all gradients of the claim lies between the two ends that
`enclose` gives, its own rounding included (the binary32 rounding of the updates comes on top: see `search.slack_of`).
At a gradient in no range of `slivers_above` the op model does not deviate by more than the given amount.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch

from guarded_moments.oracle.exhaustive import Coordinate
from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.arithmetic.compiled_operations import jit
from guarded_moments.reference.guard.cell_slack import deviation_inflation, make_deviation_upper
from guarded_moments.reference.guard.cells import End, make_terms, make_uppers, make_value
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.guard.cut import FIRST_ENDS, make_cut, make_first_end, make_scale
from guarded_moments.reference.guard.enclosure import Enclosure, rounded_outward
from guarded_moments.reference.guard.search import CellBounds, States, largest_gradient
from guarded_moments.reference.guard.slopes import Point, make_point, make_slope_uppers

#: Cells of one coordinate after which its enclosure is left as wide as it is.
MAX_CELLS = 20_000
#: A cell of fewer binary32 values is not worth splitting where each of them will be evaluated.
SHORT = 256
_STACK = 512  #: cells waiting at a time; depth-first, each split adds one
_NUMBERS = 15  #: of a waiting cell: both ends and the bound

Array = np.ndarray[Any, Any]


class Sliver(NamedTuple):
    """Consecutive binary32 gradients of one sign."""

    first: int  #: bit pattern, sign included
    length: int


def enclose(constants: GuardConstants[float], states: States, *, relative_gap: float = 1e-4) -> Enclosure:
    """Enclose the supremum of the real-arithmetic deviation of each coordinate over all gradients of the claim.

    Args:
        constants: of the tensor.
        states: coordinates in the guard's domain, float32 on CPU, shape (n,).
        relative_gap: stop where the upper end is at most this share above the lower.
    """
    upper, gradient = (np.empty(len(states.m)) for _ in range(2))
    arrays = (moment.contiguous().numpy() for moment in states)
    _compiled().enclose(binary64_constants(constants), _limit(constants), relative_gap, *arrays, upper, gradient)
    bounds = CellBounds(constants, states)
    return rounded_outward(constants, bounds, torch.from_numpy(upper), torch.from_numpy(gradient))


def slivers_above(constants: GuardConstants[float], coordinate: Coordinate, deviation: float) -> list[Sliver]:
    """The gradients at which one coordinate may deviate by more than `deviation`, in ascending order of magnitude.

    Args:
        constants: of the tensor.
        coordinate: in the guard's domain.
        deviation: bit-exact, in units of the parameter; at least 0.
    """
    found: list[Sliver] = []
    values = tuple(np.float64(value) for value in coordinate)
    cleared = deviation / deviation_inflation() * (1 - 2.0**-50)
    for negative in (False, True):
        ranges = _compiled().slivers(binary64_constants(constants), _limit(constants), cleared, *values, negative)
        for low, high in ranges.tolist():
            first = (1 << 31 if negative else 0) | low
            if found and found[-1].first + found[-1].length - 1 == first:
                found[-1] = Sliver(found[-1].first, found[-1].length + high - low)
            else:
                found.append(Sliver(first, high - low + 1))
    return found


def _limit(constants: GuardConstants[float]) -> np.float64:
    return np.float64(largest_gradient(constants))


class _Loops(NamedTuple):
    enclose: Callable[..., None]
    slivers: Callable[..., Array]


@lru_cache(maxsize=1)
def _compiled() -> _Loops:  # noqa: C901, PLR0915 - two loops over one stack; numba's parts live inside
    """Compile both loops; some seconds, once a process."""
    op: Any = CompiledBinary64()
    make: tuple[Any, ...] = (make_terms, make_point, make_value, make_uppers, make_slope_uppers, make_deviation_upper)
    terms_of, point_at, value_at, uppers_of, slope_uppers_of, deviation_upper = (builder(op, jit) for builder in make)
    places: tuple[Any, ...] = (make_scale, make_first_end, make_cut)
    scale_of, share_of, cut_of = (builder(op, jit) for builder in places)
    ends = np.array(FIRST_ENDS[1:], dtype=np.float64)

    @jit
    def first_end(k, limit, terms, j):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        return limit if j == len(ends) else share_of(ends[j], scale_of(k, terms.v, terms.v_hat), limit)

    @jit
    def bounds_of(k, terms, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        plus, minus = uppers_of(k, terms.shift, terms.pull, low.end, high.end)
        if low.end.g > 0.0:
            by_slope, by_slope_minus = slope_uppers_of(k, terms.shift, terms.pull, low, high)
            plus, minus = min(plus, by_slope), min(minus, by_slope_minus)
        return plus, minus

    @jit
    def put(row, at, point):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        row[at], row[at + 1], row[at + 2] = point.end.g, point.end.reciprocal, point.end.difference
        row[at + 3], row[at + 4], row[at + 5], row[at + 6] = (
            point.root,
            point.root_hat,
            point.reciprocal,
            point.root_gap,
        )

    @jit
    def get(row, at):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        end = End(row[at], row[at + 1], row[at + 2])
        return Point(end, row[at + 3], row[at + 4], row[at + 5], row[at + 6])

    @jit
    def push(row, low, high, upper):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        put(row, 0, low)
        put(row, 7, high)
        row[14] = upper

    @jit
    def bits_of(g):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        return np.array([g], dtype=np.float32).view(np.uint32)[0]

    @numba.njit(error_model="numpy")
    def enclose_all(k, limit, relative_gap, m, v, m_hat, v_hat, uppers, gradients):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        stack = np.empty((_STACK, _NUMBERS))
        for i in range(len(m)):
            terms = terms_of(k, np.float64(m[i]), np.float64(v[i]), np.float64(m_hat[i]), np.float64(v_hat[i]))
            low = point_at(k, terms.v, terms.v_hat, terms.gap, 0.0)
            plus, minus = value_at(k, terms.shift, terms.pull, low.end)
            best, at, top = max(plus, minus), 0.0, 0
            for j in range(len(ends) + 1):
                g = first_end(k, limit, terms, j)
                if g <= low.end.g and (j < len(ends) or g > 0.0):  # no width, and covered by its neighbours
                    continue
                high = point_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, high.end)
                if max(plus, minus) > best:
                    best, at = max(plus, minus), g if plus >= minus else -g
                plus, minus = bounds_of(k, terms, low, high)
                push(stack[top], low, high, max(plus, minus))
                top += 1
                low = high
            unsplit, cells = 0.0, 0
            while top > 0:
                top -= 1
                upper = stack[top, 14]
                if upper <= best * (1.0 + relative_gap):
                    continue
                low, high = get(stack[top], 0), get(stack[top], 7)
                g = cut_of(low.end.g, high.end.g)
                if g <= low.end.g or g >= high.end.g or cells >= MAX_CELLS or top + 2 > _STACK:
                    unsplit = max(unsplit, upper)
                    continue
                cells += 1
                cut = point_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, cut.end)
                if max(plus, minus) > best:
                    best, at = max(plus, minus), g if plus >= minus else -g
                plus, minus = bounds_of(k, terms, low, cut)
                lower_half = max(plus, minus)
                plus, minus = bounds_of(k, terms, cut, high)
                upper_half = max(plus, minus)
                # The likelier half is on top of the stack, so that the best value rises early.
                if lower_half <= upper_half:
                    push(stack[top], low, cut, lower_half)
                    push(stack[top + 1], cut, high, upper_half)
                else:
                    push(stack[top], cut, high, upper_half)
                    push(stack[top + 1], low, cut, lower_half)
                top += 2
            uppers[i], gradients[i] = max(best * (1.0 + relative_gap), unsplit), at

    @jit
    def highest(k, terms, m, m_hat, low, high, negative):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        upper = bounds_of(k, terms, low, high)[1 if negative else 0]
        return deviation_upper(k, upper, m, m_hat, low, high)

    @numba.njit(error_model="numpy")
    def slivers(k, limit, cleared, m, v, m_hat, v_hat, negative):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        stack = np.empty((_STACK, _NUMBERS))
        ranges = np.empty((64, 2), dtype=np.int64)
        if limit == 0.0:  # zero is all there is: no cell has a width
            ranges[0, 0], ranges[0, 1] = 0, 0
            return ranges[:1]
        terms = terms_of(k, m, v, m_hat, v_hat)
        # Largest magnitudes first onto the stack, so that the smallest are taken off first and ranges come in order.
        high, top, count = point_at(k, terms.v, terms.v_hat, terms.gap, limit), 0, 0
        for j in range(len(ends) - 1, -2, -1):
            g = 0.0 if j < 0 else first_end(k, limit, terms, j)
            if g >= high.end.g:
                continue
            low = point_at(k, terms.v, terms.v_hat, terms.gap, g)
            push(stack[top], low, high, highest(k, terms, m, m_hat, low, high, negative))
            top += 1
            high = low
        while top > 0:
            top -= 1
            if stack[top, 14] <= cleared:
                continue
            low, high = get(stack[top], 0), get(stack[top], 7)
            first, last = bits_of(low.end.g), bits_of(high.end.g)
            at_ends = min(
                highest(k, terms, m, m_hat, low, low, negative), highest(k, terms, m, m_hat, high, high, negative)
            )
            if np.int64(last) - np.int64(first) <= SHORT or at_ends > cleared or top + 2 > _STACK:
                if count == len(ranges):
                    ranges = np.concatenate((ranges, np.empty_like(ranges)))
                ranges[count, 0], ranges[count, 1] = first, last
                count += 1
                continue
            cut = point_at(k, terms.v, terms.v_hat, terms.gap, cut_of(low.end.g, high.end.g))
            push(stack[top], cut, high, highest(k, terms, m, m_hat, cut, high, negative))
            push(stack[top + 1], low, cut, highest(k, terms, m, m_hat, low, cut, negative))
            top += 2
        return ranges[:count]

    return _Loops(enclose_all, slivers)
