"""Hypothesis strategies for the tests of a backend's author: numbers, tensors and claims that break kernels.

The requirements of `pytest --oracle` are fixed; these are for properties of one's own, which hypothesis then shrinks.

Claimed: nothing of what they make is outside its description; `verdicts` are exact, by the search over every gradient.
"""

from __future__ import annotations

import math
from itertools import cycle, islice
from typing import NamedTuple

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Grids, RatioGrid
from guarded_moments.oracle.conformance.encode import nearest_codes
from guarded_moments.oracle.conformance.inputs import GRIDS
from guarded_moments.oracle.conformance.ratio import RATIO_GRIDS, roots_and_levels
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.exhaustive import CompiledTrajectories
from guarded_moments.oracle.worst_case import Certainty
from guarded_moments.oracle.worst_case.supremum import worst_cases
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.ratio_ranges import LARGEST_MULTIPLE
from guarded_moments.reference.floats import LARGEST_FINITE_BITS, bits_of, from_bits, round_to_binary32
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.guard.search import States

_SIGN, _ONE, _SMALLEST_NORMAL, _INFINITY, _NAN = 0x80000000, 0x3F800000, 0x00800000, 0x7F800000, 0x7FC00000
_EDGES = (0, 1, 2, _SMALLEST_NORMAL - 1, _SMALLEST_NORMAL, _SMALLEST_NORMAL + 1, _ONE - 1, _ONE, _ONE + 1)
_ULPS_AROUND = 2
_OCTAVES = 3  #: around 1, where rounding shows

#: Around the widths of vectors, and on either side of a block.
SIZES = (*range(71), 4095, 4096, 4097)
_BETAS = ((0.9, 0.999), (0.9, 0.95), (0.0, 0.999), (0.5, 0.99), (0.95, 0.9))
_STEPS = (1.0, 2.0, 1000.0, float(2**24))
_BOUNDS = (1e-6, 1e-3, 1.0, math.inf)
_FEW_GRADIENTS = 1 << 22


def binary32(*, signs: bool = True, finite: bool = False, zero: bool = True) -> st.SearchStrategy[float]:
    """A binary32 value in a Python float: any, subnormal, around 1, or where a rule of the format ends.

    Args:
        signs: negative values and minus zero too.
        finite: neither infinity nor NaN.
        zero: zero too.
    """
    first, last = (0 if zero else 1), (LARGEST_FINITE_BITS if finite else _INFINITY)
    edges = (*_EDGES, LARGEST_FINITE_BITS - 1, LARGEST_FINITE_BITS, _INFINITY)
    magnitudes = [
        st.integers(first, last),
        st.integers(first, _SMALLEST_NORMAL),
        st.integers(_ONE - (_OCTAVES << 23), _ONE + (_OCTAVES << 23)),
        st.sampled_from([bits for bits in edges if first <= bits <= last]),
    ]
    if not finite:
        magnitudes.append(st.just(_NAN))
    sign = st.sampled_from((0, _SIGN)) if signs else st.just(0)
    return st.builds(lambda bits, sign: from_bits(bits | sign), st.one_of(magnitudes), sign)


def near_levels(grid: LogGrid) -> st.SearchStrategy[float]:
    """A positive binary32 value on a level of a grid or half way between two, or up to two ulps off."""
    half_steps, ulps = st.integers(0, 2 * grid.levels - 2), st.integers(-_ULPS_AROUND, _ULPS_AROUND)
    return st.builds(lambda at, off: from_bits(bits_of(2.0 ** grid.exponent(at / 2)) + off), half_steps, ulps)


def grids() -> st.SearchStrategy[Grids]:
    """Grids of a tensor: the usual, odd bounds, steps of whole and half octaves, the least step, the widest range."""
    return st.sampled_from(GRIDS)


def first_moments(of: Grids) -> st.SearchStrategy[float]:
    """Values of `m`, finite: near levels of a grid and anywhere, zeros of both signs."""
    signed = st.builds(lambda magnitude, sign: sign * magnitude, near_levels(of.m), st.sampled_from((1.0, -1.0)))
    return st.one_of(signed, binary32(finite=True), st.sampled_from((0.0, -0.0)))


def second_moments(of: Grids) -> st.SearchStrategy[float]:
    """Values of `v`, finite and not negative: near levels of a grid and anywhere, zero."""
    return st.one_of(near_levels(of.v), binary32(finite=True, signs=False), st.just(0.0))


def ratio_grids() -> st.SearchStrategy[RatioGrid]:
    """Grids and steps of `ratio8`: the usual, odd bounds, whole octaves, where there are ties, and both ends."""
    return st.sampled_from(RATIO_GRIDS)


@st.composite
def ratio_states(draw: st.DrawFn, of: RatioGrid) -> tuple[float, float]:
    """A pair of moments for `ratio8`, `v` positive: `m` on a multiple of its unit, half way between two, or an ulp off.

    Args:
        draw: of hypothesis.
        of: whose levels `v` is near; its unit is the step times the root of the level that `v` becomes.
    """
    v = draw(near_levels(of.v))
    root = float(roots_and_levels(of.v)[0][int(nearest_codes("v", of.v, torch.tensor([v])))])
    halves, off = draw(st.integers(1, 2 * LARGEST_MULTIPLE + 3)), draw(st.integers(-1, 1))
    m = from_bits(bits_of(round_to_binary32(halves / 2 * of.step * root)) + off)
    return draw(st.sampled_from((m, -m, 0.0, -0.0))), v


@st.composite
def tensors(draw: st.DrawFn, values: st.SearchStrategy[float], size: int | None = None) -> Tensor:
    """A float32 tensor of shape (n,) of drawn values: contiguous, off its allocation's alignment, or strided.

    Args:
        draw: of hypothesis.
        values: the elements; of a large tensor up to 70 are drawn and repeated.
        size: n; one of `SIZES` by default.
    """
    n = draw(st.sampled_from(SIZES)) if size is None else size
    drawn = draw(st.lists(values, min_size=min(n, 1), max_size=min(n, 70)))
    offset, stride = draw(st.integers(0, 3)), draw(st.sampled_from((1, 1, 2, 3)))
    memory = torch.full((offset + stride * n,), math.nan)  # what lies between the elements must not be read
    tensor = memory[offset::stride][:n]
    tensor.copy_(torch.tensor(list(islice(cycle(drawn), n)), dtype=torch.float32))
    return tensor


class Moments(NamedTuple):
    """The moments of one tensor and grids for them."""

    m: Tensor
    v: Tensor
    grids: Grids


@st.composite
def moments(draw: st.DrawFn) -> Moments:
    """Both moments of a tensor: of one size, each with a layout of its own."""
    of = draw(grids())
    n = draw(st.sampled_from(SIZES))
    return Moments(draw(tensors(first_moments(of), n)), draw(tensors(second_moments(of), n)), of)


def scenes(op_model: str = "torch-2.13-cpu-avx2/single") -> st.SearchStrategy[Scene]:
    """Claims about a tensor at the corners of their hyperparameters: the first update, the 2**24th, no bound, a tiny.

    Args:
        op_model: name of the implementation that they are for, as `gmc ops` lists them.
    """
    return st.builds(
        Scene,
        st.just(op_model),
        st.sampled_from((1e-4, 0.01, 0.5)),
        st.sampled_from(_BOUNDS),
        st.sampled_from(_STEPS),
        st.sampled_from((1e-6, 1e-3, 1.0)),
        st.sampled_from(_BETAS),
        st.sampled_from((1e-15, 1e-8, 1e-3)),
    )


class AtTolerance(NamedTuple):
    """One pair of states whose worst case is exactly at the tolerance."""

    scene: Scene
    states: States  #: native and recovered, float32, shape (1,)
    gradient: float  #: binary32: the worst one
    safe: GuardConstants[float]  #: a threshold that the worst case meets: a guard may accept
    unsafe: GuardConstants[float]  #: one unit in the last place of binary64 less: accepting is a violation


@st.composite
def at_the_tolerance(draw: st.DrawFn, op_model: str = "torch-2.13-cpu-avx2/single") -> AtTolerance:
    """A pair of states, and thresholds at its exact worst case over every gradient and just below.

    The worst case is found by the exact search, some milliseconds a pair after a compilation of seconds; a pair for
    which that takes more than four million gradients is not used.

    Args:
        draw: of hypothesis.
        op_model: name of the implementation whose body's op model decides.
    """
    scene = draw(scenes(op_model))
    scale = 2.0 ** draw(st.floats(-20, -2))
    share, off_m, off_v = draw(st.floats(-3, 3)), draw(st.floats(-0.3, 0.3)), draw(st.floats(-0.3, 0.5))
    m, v = scale * share, scale * scale
    states = States(*(torch.tensor([x], dtype=torch.float32) for x in (m, v, m * (1 + off_m), v * (1 + off_v))))
    trajectories = CompiledTrajectories(scene.implementation.body, scene.options, scene.scalars)
    found = worst_cases(scene.constants, trajectories, states, _FEW_GRADIENTS)
    deviation = float(found.deviation)
    hypothesis.assume(int(found.certainty) == Certainty.EXACT and 0.0 < deviation < math.inf)
    below = scene.constants._replace(threshold=math.nextafter(deviation, 0.0))
    return AtTolerance(scene, states, float(found.gradient), scene.constants._replace(threshold=deviation), below)
