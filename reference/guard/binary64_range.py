"""That no operation of the guard underflows or overflows in binary64: its sources, run on exponents, for every claim.

The guard counts how often its own numbers are rounded, and a rounding is relative to what is rounded only for results
in the normal range.  Here all that the guard and the search evaluate is run once, with the claim's constants and with
ranges of exponents in place of states and gradients: every pair of second moments and every cell of gradients that a
claim has is in one of a few hundred cases, which run together as arrays.  A claim with a case in which a product, a
quotient or a root may leave the normal range is refused.  Sums are exact where they are small.

A magnitude is zero or from `2**low` to `2**high`, a multiple of `2**grid`, and of a known sign or not.  Infinity is
allowed where a minimum drops it, since the same number would be dropped with a larger range of exponents.

Claimed: where `require_normal` returns, every nonzero product, quotient and root of the sources that `evaluate` runs is
at least the smallest normal number, and every result finite or dropped, for all moments of the guard's domain and all
`|g| <= gradient_bound`.  Trusted: the rules of the operations below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, BINARY64, FloatFormat
from guarded_moments.reference.guard.allowance import make_allowance
from guarded_moments.reference.guard.cell_slack import deviation_inflation, make_deviation_upper
from guarded_moments.reference.guard.cells import make_terms, make_uppers, make_value
from guarded_moments.reference.guard.closed_form import bound_inflation, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT
from guarded_moments.reference.guard.slopes import make_point, make_slope_uppers

Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Truth: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

#: Exponents of the smallest normal number of binary64 and of what is beyond it.
SMALLEST_NORMAL, BEYOND = 1 - BINARY64.largest_exponent, BINARY64.largest_exponent + 1
#: The exponents of zero, which has none, and of what is no number; farther than any that a formula reaches.
_NEVER, _NO_NUMBER = 1 << 40, 1 << 30
#: Exponents of second moments and of gradients in one case.
BAND = 64


class Exponents(NamedTuple):
    """What is known of a number in each case; arrays that broadcast."""

    low: Array  #: it is zero or at least `2**low` in magnitude
    high: Array  #: and at most `2**high`
    grid: Array  #: and a multiple of `2**grid`
    sign: Array  #: 1 if never negative, -1 if never positive, 0 if not known
    zero: Truth  #: whether it may be zero

    @property
    def is_zero(self) -> Truth:
        """Where it is zero and nothing else."""
        return np.asarray(self.low > self.high)


def exponents(low: Array, high: Array, sign: Array, zero: Truth, grid: Array | None = None) -> Exponents:
    """Of a number with 53 digits, unless its grid is known to be coarser; none of its arrays are aligned yet."""
    fine = low - BINARY64.precision + 1
    return Exponents(low, high, fine if grid is None else np.maximum(fine, grid), sign, zero)


class OutOfRangeError(UnsupportedError):
    """A result may be too small or too large for binary64."""

    def __init__(self, what: str) -> None:
        """Say what may happen."""
        super().__init__(f"the guard cannot be evaluated in binary64 for these hyperparameters and gradients: {what}")


@final
class ExponentRange:
    """`SignedArithmetic[Exponents]`, in binary64 rounded to nearest.

    Raises:
        OutOfRangeError: by an operation whose result may leave the normal range.
    """

    def __init__(self, order: Mapping[tuple[int, int], Array] | None = None) -> None:
        """Start with nothing computed.

        Args:
            order: the sign of the difference of two operands, by their `id`s, where a case knows it.
        """
        self._order = order or {}

    def constant(self, value: float) -> Exponents:
        """A number."""
        sign, zero = np.array(int(np.sign(value))), np.array(value == 0)
        if value == 0:
            return Exponents(np.array(_NEVER), np.array(-_NEVER), np.array(_NEVER), np.array(1), zero)
        exponent = np.array(math.frexp(value)[1])
        return self._result(exponents(exponent - 1, exponent, sign, zero))

    def _result(self, found: Exponents) -> Exponents:
        """What a product, a quotient or a root may be."""
        least = int(np.where(found.is_zero, SMALLEST_NORMAL, found.low).min())
        if least < SMALLEST_NORMAL:
            raise OutOfRangeError(f"2**{least} has no full precision")
        return found

    def finite(self, a: Exponents) -> Exponents:
        """An operand, of which no operation but a minimum takes infinity."""
        most = int(a.high.max())
        if most >= BEYOND:
            raise OutOfRangeError("a divisor may be zero" if most >= _NO_NUMBER // 2 else f"2**{most} overflows")
        return a

    def add(self, a: Exponents, b: Exponents) -> Exponents:
        """`a + b`: of terms of both signs, a multiple of the finer grid."""
        a, b = self.finite(a), self.finite(b)
        grid, sign = np.minimum(a.grid, b.grid), np.where(a.sign == b.sign, a.sign, 0)
        sign = np.where(a.is_zero, b.sign, np.where(b.is_zero, a.sign, sign))
        grown = np.where(a.zero | b.zero, np.minimum(a.low, b.low), np.maximum(a.low, b.low))
        grown = np.where(a.zero & ~b.zero, b.low, np.where(b.zero & ~a.zero, a.low, grown))
        low = np.where(sign == 0, grid, np.maximum(grown, grid))
        low, high = np.where(b.is_zero, a.low, low), np.where(b.is_zero, a.high, np.maximum(a.high, b.high) + 1)
        low, high = np.where(a.is_zero, b.low, low), np.where(a.is_zero, b.high, high)
        zero = np.where(sign == 0, ~(a.is_zero ^ b.is_zero) | a.zero & b.zero, a.zero & b.zero)
        return exponents(low, high, sign, zero, grid)

    def sub(self, a: Exponents, b: Exponents) -> Exponents:
        """`a - b`."""
        found, order = self.add(a, self.negate(b)), self._order.get((id(a), id(b)))
        if order is None:
            return found
        low, high = np.where(order == 0, _NEVER, found.low), np.where(order == 0, -_NEVER, found.high)
        return exponents(low, high, np.where(order == 0, 1, order), order == 0, found.grid)

    def distance(self, a: Exponents, b: Exponents) -> Exponents:
        """`|a - b|`."""
        return self.absolute(self.sub(a, b))

    def mul(self, a: Exponents, b: Exponents) -> Exponents:
        """`a * b`."""
        a, b = self.finite(a), self.finite(b)
        nothing = a.is_zero | b.is_zero
        low, high = np.where(nothing, _NEVER, a.low + b.low), np.where(nothing, -_NEVER, a.high + b.high)
        sign = np.where(nothing, 1, a.sign * b.sign)
        return self._result(exponents(low, high, sign, a.zero | b.zero))

    def div(self, a: Exponents, b: Exponents) -> Exponents:
        """`a / b`; no number where `b` may be zero."""
        a, b = self.finite(a), self.finite(b)
        low, high = a.low - b.high, np.where(b.zero, _NO_NUMBER, a.high - b.low)
        low, high = np.where(a.is_zero, _NEVER, low), np.where(a.is_zero & ~b.zero, -_NEVER, high)
        return self._result(exponents(low, high, np.where(a.is_zero, 1, a.sign * b.sign), a.zero))

    def sqrt(self, a: Exponents) -> Exponents:
        """The square root of what is not negative, off by one unit in the last place or not."""
        a = self.finite(a)
        low, high = np.where(a.is_zero, _NEVER, a.low // 2 - 1), np.where(a.is_zero, -_NEVER, -(-a.high // 2) + 1)
        return self._result(exponents(low, high, np.ones_like(a.sign), a.zero))

    def absolute(self, a: Exponents) -> Exponents:
        """`|a|`."""
        return a._replace(sign=np.ones_like(a.sign))

    def negate(self, a: Exponents) -> Exponents:
        """`-a`."""
        return a._replace(sign=np.where(a.is_zero, 1, -a.sign))

    def minimum(self, a: Exponents, b: Exponents) -> Exponents:
        """The smaller; of numbers that are not negative, one may be infinity."""
        return self._extreme(a, b, smaller=True)

    def maximum(self, a: Exponents, b: Exponents) -> Exponents:
        """The larger."""
        return self._extreme(self.finite(a), self.finite(b), smaller=False)

    def _extreme(self, a: Exponents, b: Exponents, *, smaller: bool) -> Exponents:
        positive = (a.sign == 1) & (b.sign == 1)
        if not smaller or not bool(positive.all()) or max(a.high.max(), b.high.max()) >= _NO_NUMBER // 2:
            a, b = self.finite(a), self.finite(b)
        sign = np.where(a.sign == b.sign, a.sign, 0)
        if smaller:
            high = np.where(positive, np.minimum(a.high, b.high), np.maximum(a.high, b.high))
            return exponents(np.minimum(a.low, b.low), high, sign, a.zero | b.zero, np.minimum(a.grid, b.grid))
        # The larger of a number that is not zero and another that is not negative is at least the first.
        low = np.minimum(a.low, b.low)
        low = np.where(positive & ~a.zero, np.maximum(low, a.low), low)
        low = np.where(positive & ~b.zero, np.maximum(low, b.low), low)
        zero = np.where(positive, a.zero & b.zero, a.zero | b.zero)
        return exponents(low, np.maximum(a.high, b.high), sign, zero, np.minimum(a.grid, b.grid))


class Cases(NamedTuple):
    """The states of a coordinate and the ends of a cell, in all cases at once."""

    m: Exponents
    v: Exponents
    m_hat: Exponents
    v_hat: Exponents
    low: Exponents
    high: Exponents
    order: Mapping[tuple[int, int], Array]  #: as `ExponentRange` takes it


#: A number of one case: at least `2**low` and at most `2**high`, or zero.
_Band: TypeAlias = tuple[int, int]
ZERO: _Band = (_NEVER, -_NEVER)


def _bands(least: int, most: int) -> list[_Band]:
    """Zero, and ranges that together hold every magnitude from `2**least` to `2**most`, in ascending order."""
    return [ZERO, *((low, min(low + BAND, most)) for low in range(least, most, BAND))]


def _pairs(bands: Sequence[_Band]) -> Iterator[tuple[_Band, _Band, int]]:
    """Two numbers, and the sign of the first less the second."""
    for (i, one), (j, other) in product(enumerate(bands), repeat=2):
        orders = (1,) if i > j else (-1,) if i < j else (0,) if one == ZERO else (-1, 0, 1)
        yield from ((one, other, order) for order in orders)


def cases(gradient_bound: float, fmt: FloatFormat, *, from_zero: bool) -> Cases:
    """Of the guard's domain and the gradients of a claim, for cells that begin at zero, or above it.

    Args:
        gradient_bound: the largest `|g|`.
        fmt: the format that moments and gradients are in.
        from_zero: whether the low end of a cell is zero.
    """
    least = int(math.log2(fmt.smallest_subnormal))
    seconds = _bands(least, int(math.log2(LARGEST_SECOND_MOMENT)))
    gradients = _bands(least, max(least + 1, math.frexp(gradient_bound)[1]))
    cells = [cell for cell in _pairs(gradients) if cell[2] >= 0 and (cell[1] == ZERO) == from_zero]
    made = [[*v, *v_hat, order, *high, *low, wide]
            for (v, v_hat, order), (high, low, wide) in product(_pairs(seconds), cells)]  # fmt: skip
    return in_cases(np.array(made).T, fmt)


def in_cases(made: Array, fmt: FloatFormat) -> Cases:
    """States and cells in the ranges of exponents given.

    Args:
        made: one column a case: the range of `v` and of `v_hat`, the sign of `v - v_hat`, the range of the high and of
            the low end, the sign of their difference; shape (10, cases).
        fmt: the format that moments and gradients are in.
    """
    least = int(math.log2(fmt.smallest_subnormal))

    def held(low: Array, high: Array) -> Exponents:
        """A number of the format that is not negative."""
        grid = np.maximum(low - fmt.precision + 1, least)
        return exponents(low, high, np.ones_like(low), low > high, grid)

    v, v_hat, high, low = (held(made[at], made[at + 1]) for at in (0, 2, 5, 7))
    order = {(id(v), id(v_hat)): made[4], (id(v_hat), id(v)): -made[4], (id(high), id(low)): made[9]}
    # A first moment of any size and sign, or zero: two of them, whose difference is not that of one with itself.
    least_exponent, most = np.array(least), np.array(int(math.log2(LARGEST_MOMENT)))
    m, m_hat = (exponents(least_exponent, most, np.array(0), most > least, least_exponent) for _ in range(2))
    return Cases(m, v, m_hat, v_hat, low, high, order)


def evaluate(k: GuardConstants[float], of: Cases, *, from_zero: bool) -> None:
    """Run every source of the guard and of the searches.

    Raises:
        OutOfRangeError: a result may leave the normal range.
    """
    op = ExponentRange(of.order)
    constants: GuardConstants[Exponents] = GuardConstants(*(op.constant(value) for value in k))
    states = (of.m, of.v, of.m_hat, of.v_hat)
    inflation = op.constant(bound_inflation())
    shown = [
        op.mul(make_deviation_bound(op)(constants, *states), inflation),
        make_allowance(op)(constants, inflation, *states),
    ]
    terms, point = make_terms(op)(constants, *states), make_point(op)
    low, high = (point(constants, of.v, of.v_hat, terms.gap, g) for g in (of.low, of.high))
    shown += make_value(op)(constants, terms.shift, terms.pull, high.end)
    uppers = [*make_uppers(op)(constants, terms.shift, terms.pull, low.end, high.end)]
    if not from_zero:
        uppers += make_slope_uppers(op)(constants, terms.shift, terms.pull, low, high)
    for upper in map(op.absolute, uppers):  # no bound of a magnitude is negative
        deviation = make_deviation_upper(op)(constants, upper, of.m, of.m_hat, low, high)
        shown.append(op.mul(deviation, op.constant(deviation_inflation())))
    for value in shown:
        op.finite(value)


@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here
def require_normal(constants: GuardConstants[float], fmt: FloatFormat = BINARY32) -> None:
    """Evaluate the guard and the searches on everything that a claim admits.

    Args:
        constants: of the claim.
        fmt: the format that moments and gradients are in.

    Raises:
        OutOfRangeError: an operation may underflow or overflow in binary64.
    """
    for from_zero in (True, False):
        evaluate(constants, cases(constants.gradient_bound, fmt, from_zero=from_zero), from_zero=from_zero)
