"""Every binary32 gradient of a coordinate, in the bit-exact op model: the oracle that trusts no bound at all.

The loops are compiled from the one step of `reference.adam` over `CompiledBinary32`; a platform's root is called on
arrays between two of them, as the black box it is.

Claimed: `exhaust` returns the largest deviation over all binary32 `|g| <= bound`, exactly (rounded up to binary64 only
where it is no binary64), and a gradient that attains it.  Trusted: the compiled arithmetic, checked against NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.adam import Scalars, StepOptions, make_increment, make_moments
from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.arithmetic.compiled_operations import jit
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.op_models import OpModel, SquareRoot, Update
from guarded_moments.reference.platform import one_torch_thread

#: Gradients worked on at a time: the arrays of a block stay in a core's cache.
_BLOCK = 1 << 15
_SIGN = 0x80000000


class Coordinate(NamedTuple):
    """One coordinate's two states, binary32 values."""

    m: float
    v: float
    m_hat: float
    v_hat: float


class Extreme(NamedTuple):
    """The largest deviation over a range of gradients."""

    deviation: float  #: in units of the parameter
    gradient: float  #: a binary32 value that attains it
    evaluated: int  #: how many gradients


class CompiledTrajectories:
    """Both updates of one op model, compiled, for ranges of consecutive binary32 gradients of one coordinate."""

    def __init__(self, model: OpModel, options: StepOptions, scalars: Scalars[float]) -> None:
        """Compile the op model (once a model and options; a few seconds) and fix its constants."""
        self._moments, self._distances = _compiled(model, options)
        self._largest = _compiled_largest()
        self._scalars = Scalars(*(np.float32(value) for value in scalars))
        self._root: Callable[..., Any] = _platform_root if model.square_root is SquareRoot.PLATFORM else _correct_root
        self._arrays = [np.empty(_BLOCK, dtype=np.float32) for _ in range(4)]
        unrounded = model.update is Update.DIVIDE_THEN_MULTIPLY  # an exact product, of more digits than binary32 has
        self._updates = [np.empty(_BLOCK, dtype=np.float64 if unrounded else np.float32) for _ in range(2)]
        self._distance = np.empty(_BLOCK, dtype=np.float64)

    def worst(self, coordinate: Coordinate, first: int, count: int) -> Extreme:
        """The largest deviation at the gradients whose bits are `first, first + 1, ..., first + count - 1`."""
        state = tuple(np.float32(value) for value in coordinate)
        deviation, at = -1.0, first
        for begin in range(first, first + count, _BLOCK):
            size = min(_BLOCK, first + count - begin)
            m, v, m_hat, v_hat = (array[:size] for array in self._arrays)
            distances = self._distance[:size]
            self._moments(np.uint32(begin), *state, self._scalars, m, v, m_hat, v_hat)
            self._root(v)
            self._root(v_hat)
            native, recovered = (array[:size] for array in self._updates)
            self._distances(m, v, m_hat, v_hat, self._scalars, native, recovered, distances)
            largest = distances.max()
            if largest < deviation:  # rounded to nearest, so no exact one is above `deviation` either
                continue
            exact, place = self._largest(native, recovered, distances, largest)
            if exact > deviation:
                deviation, at = exact, begin + place
        return Extreme(float(deviation), _value(at), count)


def exhaust(
    trajectories: CompiledTrajectories,
    coordinate: Coordinate,
    bound: float,
    progress: Callable[[int, int], None] | None = None,
) -> Extreme:
    """Evaluate every binary32 gradient with `|g| <= bound`, of both signs.

    Args:
        trajectories: the op model.
        coordinate: native and recovered state.
        bound: `G`, at least 0 and finite.
        progress: called with gradients done and in all.
    """
    last = bits_of(bound)
    if _value(last) > bound:
        last -= 1
    total, done, turn = 2 * (last + 1), 0, 1 << 24
    worst = Extreme(-1.0, 0.0, 0)
    with one_torch_thread():
        for sign in (0, _SIGN):
            for begin in range(0, last + 1, turn):
                count = min(turn, last + 1 - begin)
                found = trajectories.worst(coordinate, sign | begin, count)
                done += count
                if found.deviation > worst.deviation:
                    worst = found
                if progress is not None:
                    progress(done, total)
    return worst._replace(evaluated=total)


def exhaust_with_torch(trajectories: Trajectories, coordinate: Coordinate, first: int, count: int) -> Extreme:
    """The same over a range of bits, in plain torch: slower, and on any device that holds the trajectories."""
    worst = Extreme(-1.0, 0.0, 0)
    for begin in range(first, first + count, _BLOCK):
        bits = torch.arange(begin, min(begin + _BLOCK, first + count), dtype=torch.int64)
        g = torch.where(bits >= _SIGN, bits - 2 * _SIGN, bits).to(torch.int32).view(torch.float32)
        states = States(*(torch.full_like(g, value) for value in coordinate))
        deviations = trajectories.deviations(states, g)
        best = int(deviations.argmax())
        if float(deviations[best]) > worst.deviation:
            worst = Extreme(float(deviations[best]), float(g[best]), 0)
    return worst._replace(evaluated=count)


def _value(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def _platform_root(values: np.ndarray[Any, Any]) -> None:
    tensor = torch.from_numpy(values)
    torch.sqrt(tensor, out=tensor)


def _correct_root(values: np.ndarray[Any, Any]) -> None:
    with np.errstate(invalid="ignore"):
        np.sqrt(values, out=values)


@cache
def _compiled(model: OpModel, options: StepOptions) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile the loops around the root: new moments of a block, and both updates with their distance."""
    op: Any = CompiledBinary32()
    moments_of, increment = make_moments(op, model, options, jit), make_increment(op, model, jit)

    @numba.njit(error_model="numpy")
    def moments(first, m, v, m_hat, v_hat, k, new_m, new_v, new_m_hat, new_v_hat):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        bits = np.empty(len(new_m), dtype=np.uint32)
        for i in range(len(bits)):
            bits[i] = first + np.uint32(i)
        g = bits.view(np.float32)
        for i in range(len(g)):
            new_m[i], new_v[i] = moments_of(m, v, g[i], k)
            new_m_hat[i], new_v_hat[i] = moments_of(m_hat, v_hat, g[i], k)

    # Two plain loops, so that both are vectorised.
    @numba.njit(error_model="numpy")
    def distances(m, root, m_hat, root_hat, k, native, recovered, distance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        for i in range(len(m)):
            native[i] = increment(m[i], root[i], k)
            recovered[i] = increment(m_hat[i], root_hat[i], k)
        for i in range(len(m)):
            distance[i] = abs(np.float64(recovered[i]) - np.float64(native[i]))

    return moments, distances


@cache
def _compiled_largest() -> Callable[..., tuple[float, int]]:
    """Compile the search for the largest of a block's distances."""

    @numba.njit(error_model="numpy")
    def largest(native, recovered, distance, nearest):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        """The largest distance rounded up, where `nearest` is the largest rounded to nearest, or NaN."""
        worst, place = -1.0, 0
        for i in range(len(distance)):
            if distance[i] != nearest and np.isfinite(nearest):
                continue
            a, b, exact = np.float64(recovered[i]), np.float64(native[i]), distance[i]
            difference = a - b
            back = difference - a
            error = (a - (difference - back)) - (b + back)  # TwoSum: exact where finite
            if (error > 0.0 and difference > 0.0) or (error < 0.0 and difference < 0.0):
                exact = np.nextafter(exact, np.inf)
            if not np.isfinite(exact):
                exact = np.float64(0.0 if a == b else np.inf)
            if exact > worst:
                worst, place = exact, i
        return worst, place

    result: Callable[..., tuple[float, int]] = largest
    return result
