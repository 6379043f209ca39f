"""Branch and bound over gradients, best first: the worst case of a coordinate between two certified numbers.

Cells are ranges of binary32 magnitudes of one sign, so that every gradient of the claim is in some cell.  A cell's
upper end is the largest absolute difference of the two updates that its enclosure allows.  The cell with the largest
is split until it is close to what a single gradient is known to reach.

Claimed: `lower <= sup |U_hat - U| <= upper` over all binary32 `|g| <= gradient_bound`, where `U` is the bit-exact
update of the op model, in units of the parameter.  Trusted: `pairs`, and `exact` where the op model's root is
correctly rounded.  The guesses are not.
"""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from guarded_moments.oracle.intervals.exact import FractionBinary32
from guarded_moments.oracle.intervals.guesses import (
    first_ends,
    likely_worst,
    middle,
    real_deviation,
    scale_of,
)
from guarded_moments.oracle.intervals.numbers import Numbers
from guarded_moments.oracle.intervals.pairs import PairArithmetic, shared
from guarded_moments.oracle.intervals.protocol import UnboundedError
from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, bits_of, from_bits, round_down, round_up
from guarded_moments.reference.op_models import OpModel, SquareRoot

#: An enclosure may stay open, beyond the share asked for, by this many times the noise of rounding.
_NOISES = 2
#: The near end of a narrow cell, over its far end.
_NARROW = 1 - 2.0**-14


class Enclosure(NamedTuple):
    """What is known of one coordinate's worst case."""

    lower: float  #: in units of the parameter: attained at `gradient`, rounded down
    upper: float  #: in units of the parameter: no gradient exceeds it; may be infinite
    gradient: float  #: binary32
    cells: int  #: how many cells were bounded


class Deviation:
    """The deviation of one coordinate, at a gradient and over cells of gradients."""

    def __init__(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        m: float,
        v: float,
        m_hat: float,
        v_hat: float,
        *,
        numbers: Numbers = Numbers.MPMATH,
    ) -> None:
        """Fix the coordinate.

        Args:
            model: the op model that both updates follow.
            options: per-tensor choices.
            scalars: the kernel's constants, `eps` and `root` of one sign.
            m: native first moment, a binary32.
            v: native second moment, a non-negative binary32.
            m_hat: recovered first moment, a binary32.
            v_hat: recovered second moment, a non-negative binary32.
            numbers: what the intervals are made of.

        Raises:
            UnsupportedError: a moment is not such a number, or a package that the numbers need is missing.
        """
        if not (all(map(_is_binary32, (m, v, m_hat, v_hat))) and v >= 0 and v_hat >= 0):
            raise UnsupportedError(f"intervals need finite binary32 moments, v >= 0, not {(m, v, m_hat, v_hat)}")
        self._intervals = numbers.intervals
        pairs, exact = PairArithmetic(self._intervals), FractionBinary32()
        self._m, self._v = pairs.pair_of(m, m_hat), pairs.pair_of(v, v_hat)
        self._pair_scalars = Scalars(*map(pairs.constant, scalars))
        self._pair_update = make_update(pairs, model, options)
        self._native, self._recovered = (Fraction(m), Fraction(v)), (Fraction(m_hat), Fraction(v_hat))
        self._exact_scalars = Scalars(*map(exact.constant, scalars))
        self._exact_update = make_update(exact, model, options)
        self._is_exact = model.square_root is SquareRoot.CORRECT

    def over(self, near: float, far: float) -> tuple[float, float]:
        """At most, and at least, `|U_hat - U|` at every `g` between two numbers of one sign."""
        ends = (near, far) if near <= far else (far, near)
        gradient = shared(self._intervals.from_ends(*ends))
        try:
            difference = self._pair_update(self._m, self._v, gradient, self._pair_scalars).difference
        except UnboundedError:
            return 0.0, math.inf
        if difference is None:
            return 0.0, 0.0
        return self._intervals.magnitudes(difference)

    def noise(self, g: float) -> float:
        """How far the enclosure of a narrow cell at `g` is open: about what rounding adds to any cell."""
        least, most = self.over(g * _NARROW, g)
        return most - least

    def at(self, g: float) -> tuple[float, float]:
        """At most, and at least, `|U_hat - U|` at a binary32 `g`; its value where the root rounds correctly."""
        if not self._is_exact:
            return self.over(g, g)
        try:
            native, recovered = (
                self._exact_update(*moments, Fraction(g), self._exact_scalars)
                for moments in (self._native, self._recovered)
            )
        except UnboundedError:
            return 0.0, math.inf
        return round_down(abs(recovered - native)), round_up(abs(recovered - native))


def enclose(
    model: OpModel,
    options: StepOptions,
    scalars: Scalars[float],
    m: float,
    v: float,
    m_hat: float,
    v_hat: float,
    gradient_bound: float,
    *,
    relative_gap: float = 0.05,
    max_cells: int = 20_000,
    numbers: Numbers = Numbers.MPMATH,
) -> Enclosure:
    """Enclose the worst case of one coordinate.

    The enclosure is certified whatever its width.  It stays wider than asked for where the rounding of the
    updates is not small beside the deviation, where a gradient may overflow, and at `max_cells`.

    Args:
        model: the op model that both updates follow.
        options: per-tensor choices.
        scalars: the kernel's constants, `eps` and `root` of one sign.
        m: native first moment, a binary32.
        v: native second moment, a non-negative binary32.
        m_hat: recovered first moment, a binary32.
        v_hat: recovered second moment, a non-negative binary32.
        gradient_bound: `G`; beyond the largest finite binary32 it means every finite gradient.
        relative_gap: stop where the upper end is at most this share, and a little rounding, above the lower.
        max_cells: stop after bounding about that many cells.
        numbers: what the intervals are made of.

    Raises:
        UnsupportedError: a moment is not such a number, or a package that the numbers need is missing.
    """
    deviation = Deviation(model, options, scalars, m, v, m_hat, v_hat, numbers=numbers)
    guess = real_deviation(model, options, scalars, m, v, m_hat, v_hat)
    scale, bound = scale_of(model, scalars, v, v_hat), _last_gradient(gradient_bound)
    ends = first_ends(scale, bound)

    gradient = likely_worst(guess, ends, scale)
    guessed = guess(gradient)
    lower, settled = deviation.at(gradient)  # `settled`: at least what the gradients looked at one by one reach
    bend = math.copysign(max(abs(gradient), scale), gradient)
    noise = max(deviation.noise(g) for g in (bend, bound, -bound))

    heap: list[tuple[float, float, float]] = []
    pieces = [(near * sign, far * sign) for near, far in pairwise(ends) for sign in (1.0, -1.0)]
    cells = 0
    while True:
        for near, far in pieces:
            heapq.heappush(heap, (-deviation.over(near, far)[1], near, far))
        cells += len(pieces)
        if not heap or cells >= max_cells or -heap[0][0] <= (1 + relative_gap) * lower + _NOISES * noise:
            break
        _, near, far = heapq.heappop(heap)
        cut = math.copysign(middle(abs(near), abs(far), scale), far)
        pieces, looked_at = [(near, cut), (cut, far)], [cut] if guess(cut) > guessed else []
        if cut in (near, far):  # they are neighbours, or one
            pieces, looked_at = [], [near, far]
        for g in looked_at:
            least, most = deviation.at(g)
            settled, guessed = max(settled, most), max(guessed, guess(g))
            lower, gradient = max((lower, gradient), (least, g))
    upper = max(settled, -heap[0][0] if heap else 0.0)
    return Enclosure(lower, upper, gradient, cells)


def _is_binary32(value: float) -> bool:
    return abs(value) <= float(BINARY32.largest) and from_bits(bits_of(value)) == value


def _last_gradient(bound: float) -> float:
    """The largest finite binary32 of at most `bound`."""
    largest = float(BINARY32.largest)
    if bound >= largest:
        return largest
    bits = bits_of(bound)
    return from_bits(bits) if from_bits(bits) <= bound else from_bits(bits - 1)
