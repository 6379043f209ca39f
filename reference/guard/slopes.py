"""A second bound over a cell of gradients, by slopes: it errs by the square of the cell's width.

The bound of `cells` errs in proportion to the width, so that a search needs some hundred cells around a maximum.  Here
`N` at the low end `a` of a cell is followed along the chord to `x`, in the notation of `cells` and with the sign of `g`
folded into `w`:

    N(x) = N(a) + (x - a) * ( -(1-w)(m_hat - m) s_hat(x) - ((1-w) m + w a)(s_hat(x) - s(x)) + w (H_hat(x) - H(x)) )
    s(x) = (H(a) - H(x)) / (x - a) = curvature * (x + a) * phi(x),   phi(x) = H(a) H(x) / (S(x) + S(a))

with `S` the root in `H = 1/(S + eps)`.  `phi`, `|phi_hat - phi|` and `|H_hat - H|` decrease in `x`, so their values at
the ends of the cell bound the bracket, cancellation between its terms kept.

Claimed: `make_slope_uppers` is at least `|N(g)|` for every `g` of the cell, its own rounding included; the low end must
not be 0.  The lemmas are `slope_*` in `proofs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic, SignedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.floats import BINARY64
from guarded_moments.reference.guard.cells import End, make_end_of_roots, make_roots
from guarded_moments.reference.guard.constants import GuardConstants, counted_constants

T = TypeVar("T")


class Point(NamedTuple, Generic[T]):
    """An end of a cell, with what its slopes are made of."""

    end: End[T]
    root: T  #: `S(g)`
    root_hat: T
    reciprocal: T  #: `H(g)`, of the native state
    root_gap: T  #: `S(g) - S_hat(g)`, signed as `gap`


class SlopeRange(NamedTuple, Generic[T]):
    """Ends of a cell's slopes, the magnitudes that they lie between."""

    steepest: T  #: `s_hat` at most
    flattest: T  #: `s_hat` at least
    difference_steepest: T  #: `s_hat - s`, where its magnitude is largest
    difference_flattest: T


def make_point(op: OrderedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T, T, T], Point[T]]:
    """Build `point(constants, v, v_hat, gap, g)`, `g` not 0."""
    add, div = op.add, op.div
    one = op.constant(1.0)
    roots, end_of_roots = make_roots(op, jit), make_end_of_roots(op, jit)

    def point(k: GuardConstants[T], v: T, v_hat: T, gap: T, g: T) -> Point[T]:
        root, root_hat = roots(k, v, v_hat, g)
        end = end_of_roots(k, gap, g, root, root_hat)
        return Point(end, root, root_hat, div(one, add(root, k.eps)), div(gap, add(root, root_hat)))

    result: Callable[[GuardConstants[T], T, T, T, T], Point[T]] = jit(point)
    return result


def make_slope_range(
    op: OrderedArithmetic[T], jit: Jit = as_is
) -> Callable[[GuardConstants[T], Point[T], Point[T]], SlopeRange[T]]:
    """Build `slope_range(constants, low, high)`; sums of terms of one sign, so nothing cancels."""
    add, mul, div = op.add, op.mul, op.div
    one = op.constant(1.0)

    def share(low: Point[T], at: Point[T]) -> tuple[T, T]:
        """`phi_hat` and `phi_hat - phi` at one end."""
        over_hat, over = div(one, add(low.root_hat, at.root_hat)), div(one, add(low.root, at.root))
        by_reciprocals = add(mul(low.end.difference, at.end.reciprocal), mul(low.reciprocal, at.end.difference))
        by_roots = mul(mul(low.reciprocal, at.reciprocal), mul(add(low.root_gap, at.root_gap), over))
        return mul(mul(low.end.reciprocal, at.end.reciprocal), over_hat), mul(add(by_reciprocals, by_roots), over_hat)

    share_at = jit(share)

    def slope_range(k: GuardConstants[T], low: Point[T], high: Point[T]) -> SlopeRange[T]:
        near, far = mul(k.curvature, add(low.end.g, low.end.g)), mul(k.curvature, add(low.end.g, high.end.g))
        steep, steep_difference = share_at(low, low)
        flat, flat_difference = share_at(low, high)
        return SlopeRange(mul(far, steep), mul(near, flat), mul(far, steep_difference), mul(near, flat_difference))

    result: Callable[[GuardConstants[T], Point[T], Point[T]], SlopeRange[T]] = jit(slope_range)
    return result


def make_slope_uppers(
    op: SignedArithmetic[T], jit: Jit = as_is
) -> Callable[[GuardConstants[T], T, T, Point[T], Point[T]], tuple[T, T]]:
    """Build `uppers(constants, shift, pull, low, high)`: at least `|N(g)|` for every `g` and every `-g` of the cell.

    Arguments as `cells.make_uppers`, with `low.end.g > 0`.
    """
    add, sub, mul, absolute = op.add, op.sub, op.mul, op.absolute
    minimum, maximum, negate = op.minimum, op.maximum, op.negate
    zero, relative_error = op.constant(0.0), op.constant(_relative_error())
    slope_range = make_slope_range(op, jit)

    def extent(start: T, width: T, most: T, least: T) -> T:
        """The largest magnitude of `start + t*slope` for `0 <= t <= width` and `least <= slope <= most`."""
        above, below = add(start, mul(width, maximum(most, zero))), add(start, mul(width, minimum(least, zero)))
        return maximum(above, negate(below))

    extent_of = jit(extent)

    def uppers(k: GuardConstants[T], shift: T, pull: T, low: Point[T], high: Point[T]) -> tuple[T, T]:
        slopes = slope_range(k, low, high)
        reach, width = mul(k.w, low.end.g), sub(high.end.g, low.end.g)
        steep, flat = mul(shift, slopes.steepest), mul(shift, slopes.flattest)
        fall, rise = maximum(steep, flat), minimum(steep, flat)
        near, far = mul(k.w, low.end.difference), mul(k.w, high.end.difference)
        largest, least = maximum(near, far), minimum(near, far)
        base = mul(shift, low.end.reciprocal)

        plus_moment, minus_moment = add(pull, reach), sub(pull, reach)
        a, b = mul(plus_moment, slopes.difference_steepest), mul(plus_moment, slopes.difference_flattest)
        plus = extent_of(
            add(base, mul(plus_moment, low.end.difference)),
            width,
            sub(sub(largest, rise), minimum(a, b)),
            sub(sub(least, fall), maximum(a, b)),
        )
        a, b = mul(minus_moment, slopes.difference_steepest), mul(minus_moment, slopes.difference_flattest)
        minus = extent_of(
            add(base, mul(minus_moment, low.end.difference)),
            width,
            sub(negate(add(least, rise)), minimum(a, b)),
            sub(negate(add(largest, fall)), maximum(a, b)),
        )
        rounding = mul(relative_error, magnitude_of(k, absolute(shift), absolute(pull), low, width, slopes))
        return add(plus, rounding), add(minus, rounding)

    magnitude_of = jit(_make_magnitude(op))
    result: Callable[[GuardConstants[T], T, T, Point[T], Point[T]], tuple[T, T]] = jit(uppers)
    return result


def _make_magnitude(op: OrderedArithmetic[T]) -> Callable[..., T]:
    """Build the sum of the magnitudes of all terms that enter a bound, to which its rounding is relative."""
    add, mul, absolute = op.add, op.mul, op.absolute

    def magnitude(k: GuardConstants[T], shift: T, pull: T, low: Point[T], width: T, slopes: SlopeRange[T]) -> T:
        moment, difference = add(pull, mul(k.w, low.end.g)), absolute(low.end.difference)
        slope = add(mul(shift, slopes.steepest), mul(moment, absolute(slopes.difference_steepest)))
        along = mul(width, add(slope, mul(k.w, difference)))
        return add(add(mul(shift, low.end.reciprocal), mul(moment, difference)), along)

    return magnitude


@cache
def _relative_error() -> float:
    """What a bound may err by, relative to the magnitudes in it: counted from the sources above."""
    op, k = RoundingCount(), counted_constants()
    shift = op.mul(k.complement, op.distance(op.exact, op.exact))
    pull = op.mul(k.complement, op.exact)
    gap = op.mul(k.radicand, op.distance(op.exact, op.exact))
    point = make_point(op)(k, op.exact, op.exact, gap, op.exact)
    slopes = make_slope_range(op)(k, point, point)
    width = op.distance(op.exact, op.exact)
    count = _make_magnitude(op)(k, shift, pull, point, width, slopes)
    return 2 * (count + 2) * float(BINARY64.unit_roundoff)  # two sums more than in the magnitude; twice: see `cells`
