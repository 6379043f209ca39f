"""That no operation of an update overflows: the op model's own source, run on ranges, for every claim.

The rounding slack is a statement about operations that are rounded, and one that overflows is not.  Here the step is
run with everything that the claim admits in place of each operand, and refused if a result could be beyond the format;
a claim about every gradient is about those up to the largest with which it is not.

A value is `of_m*m + of_g*g + rest`, with `rest` in a range: an interpolation of `m` and `g` then keeps what connects
its terms.  Where that is lost, in products, only the range of the whole is kept.

Claimed: every rounded operation of the update has a finite result for all `|m|`, `v` of the guard's domain and `|g|` up
to what `largest_finite_gradient` returns.  Trusted: the rules of the operations below, and that `v' >= 0`
(`proofs` derives it).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, final

from guarded_moments.reference.adam import Scalars, StepOptions, make_amsgrad_update, make_update
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, LARGEST_FINITE_BITS, FloatFormat, from_bits, square_root_up
from guarded_moments.reference.op_models import OpModel

#: States above these magnitudes are outside the guard's domain; far beyond any Adam state, and far below overflow.
LARGEST_MOMENT = 2.0**60
LARGEST_SECOND_MOMENT = 2.0**100

_ZERO = Fraction(0)


class Value(NamedTuple):
    """Every number that an operand can be: `of_m*m + of_g*g + rest`, with `low <= rest <= high`."""

    of_m: Fraction
    of_g: Fraction
    low: Fraction
    high: Fraction

    def scaled(self, factor: Fraction) -> Value:
        """Times a number."""
        ends = sorted((factor * self.low, factor * self.high))
        return Value(factor * self.of_m, factor * self.of_g, *ends)

    def plus(self, other: Value) -> Value:
        """The exact sum."""
        return Value(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def number(self) -> Fraction | None:
        """Its only value, if it has one that does not depend on the coordinate."""
        return self.low if self.low == self.high and self.of_m == self.of_g == 0 else None


@final
class RangeArithmetic:
    """`Arithmetic[Value]`, in one format."""

    def __init__(
        self,
        gradient_bound: Fraction,
        fmt: FloatFormat = BINARY32,
        moment: float = LARGEST_MOMENT,
        second_moment: float = LARGEST_SECOND_MOMENT,
    ) -> None:
        """For gradients up to `gradient_bound`, and moments up to those of the guard's domain or up to others."""
        self._m, self._v, self._g, self._format = Fraction(moment), Fraction(second_moment), gradient_bound, fmt

    def constant(self, value: float) -> Value:
        """A number."""
        return Value(_ZERO, _ZERO, Fraction(value), Fraction(value))

    def moment(self) -> Value:
        """`m`."""
        return Value(Fraction(1), _ZERO, _ZERO, _ZERO)

    def second_moment(self) -> Value:
        """`v`, or amsgrad's third moment."""
        return Value(_ZERO, _ZERO, _ZERO, self._v)

    def gradient(self) -> Value:
        """`g`."""
        return Value(_ZERO, Fraction(1), _ZERO, _ZERO)

    def range(self, a: Value) -> tuple[Fraction, Fraction]:
        """The least and the largest number that a value can be."""
        reach = abs(a.of_m) * self._m + abs(a.of_g) * self._g
        return a.low - reach, a.high + reach

    def _rounded(self, exact: Value, roundings: int = 1) -> Value:
        low, high = self.range(exact)
        largest = max(-low, high)
        if largest > self._format.largest:
            msg = f"an operation may reach {float(largest):.4g}, beyond the format's {float(self._format.largest):.4g}"
            raise UnsupportedError(msg)
        if exact.of_m or exact.of_g:
            error = self._error(largest, roundings)
            return exact._replace(low=exact.low - error, high=exact.high + error)
        # Rounding is monotone: the ends of a range bound it, each with the error that it has itself.
        return exact._replace(low=low - self._error(-low, roundings), high=high + self._error(high, roundings))

    def _error(self, magnitude: Fraction, roundings: int) -> Fraction:
        return roundings * (self._format.unit_roundoff * abs(magnitude) + self._format.half_smallest_subnormal)

    def _product(self, a: Value, b: Value) -> Value:
        for factor, other in ((a.number, b), (b.number, a)):
            if factor is not None:
                return other.scaled(factor)
        (low, high), (other_low, other_high) = self.range(a), self.range(b)
        corners = (low * other_low, low * other_high, high * other_low, high * other_high)
        square = a is b  # one number twice: its square is not negative
        return Value(_ZERO, _ZERO, _ZERO if square else min(corners), max(corners))

    def add(self, a: Value, b: Value) -> Value:
        """`a + b`."""
        return self._rounded(a.plus(b))

    def sub(self, a: Value, b: Value) -> Value:
        """`a - b`."""
        return self._rounded(a.plus(self.negate(b)))

    def mul(self, a: Value, b: Value) -> Value:
        """`a * b`."""
        return self._rounded(self._product(a, b))

    def product(self, a: Value, b: Value) -> Value:
        """`a * b`, exact."""
        return self._product(a, b)

    def div(self, a: Value, b: Value) -> Value:
        """`a / b`."""
        low, high = self.range(b)
        if low <= 0 <= high:
            msg = "a divisor may be zero"
            raise UnsupportedError(msg)
        return self._rounded(self._product(a, Value(_ZERO, _ZERO, 1 / high, 1 / low)))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`; where `b` and `c` are one number, `(a + 1) * c`."""
        if b is c:
            return self._rounded(self._product(a.plus(self.constant(1.0)), c))
        return self._rounded(self._product(a, b).plus(c))

    def sqrt(self, a: Value) -> Value:
        """The root of a number that is not negative."""
        return self._root(a, roundings=1)

    def platform_sqrt(self, a: Value) -> Value:
        """Within a unit in the last place of the correctly rounded root: as far off as three roundings."""
        return self._root(a, roundings=3)

    def _root(self, a: Value, roundings: int) -> Value:
        exact = Value(_ZERO, _ZERO, _ZERO, square_root_up(max(_ZERO, self.range(a)[1])))
        return self._rounded(exact, roundings)

    def negate(self, a: Value) -> Value:
        """`-a`."""
        return a.scaled(Fraction(-1))

    def select_less(self, a: Value, b: Value, if_less: Value, otherwise: Value) -> Value:  # noqa: ARG002 - either
        """One of both."""
        low, high = zip(self.range(if_less), self.range(otherwise), strict=True)
        return Value(_ZERO, _ZERO, min(low), max(high))

    def select_nan(self, a: Value, if_nan: Value, otherwise: Value) -> Value:  # noqa: ARG002 - no operand is NaN
        """`otherwise`."""
        return otherwise


@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here
def largest_finite_gradient(
    model: OpModel, options: StepOptions, scalars: Scalars[float], gradient_bound: float, fmt: FloatFormat = BINARY32
) -> float:
    """Up to which `|g|` no operation of one update overflows.

    Args:
        model: the op model.
        options: per-tensor choices.
        scalars: the kernel's constants.
        gradient_bound: the largest `|g|` of the claim; may be infinite.
        fmt: the format the model computes in.

    Returns:
        The gradient bound, or, where an operation may overflow below it, the largest binary32 up to which none does.

    Raises:
        UnsupportedError: an operation may overflow, or divide by zero, even at the smallest gradient that is not zero.
    """
    if math.isfinite(gradient_bound) and _hazard(model, options, scalars, gradient_bound, fmt) is None:
        return gradient_bound
    hazard = _hazard(model, options, scalars, from_bits(1), fmt)
    if hazard is not None:
        msg = f"{model.name} may overflow for these hyperparameters ({scalars}) at any gradient: {hazard}"
        raise UnsupportedError(msg)
    first = bisect_left(
        range(LARGEST_FINITE_BITS + 1),
        True,  # noqa: FBT003 - what is looked for
        key=lambda bits: _hazard(model, options, scalars, from_bits(bits), fmt) is not None,
    )
    return from_bits(first - 1)


def _hazard(
    model: OpModel, options: StepOptions, scalars: Scalars[float], gradient_bound: float, fmt: FloatFormat
) -> UnsupportedError | None:
    try:
        require_all_finite(model, options, [scalars], RangeArithmetic(Fraction(gradient_bound), fmt))
    except UnsupportedError as hazard:
        return hazard
    return None


def require_all_finite(
    model: OpModel, options: StepOptions, updates: Sequence[Scalars[float]], op: RangeArithmetic
) -> None:
    """Run an update on everything that a claim admits; each constant is in the range of those that it has in any.

    Args:
        model: the op model.
        options: per-tensor choices.
        updates: the kernel's constants at each.
        op: for the largest moments and gradient that any update meets.

    Raises:
        UnsupportedError: an operation may overflow, or divide by zero.
    """
    constants: Scalars[Value] = Scalars(
        *(Value(_ZERO, _ZERO, Fraction(min(values)), Fraction(max(values))) for values in zip(*updates, strict=True))
    )
    m, v, g = op.moment(), op.second_moment(), op.gradient()
    if options.amsgrad:
        make_amsgrad_update(op, model, options)(m, v, op.second_moment(), g, constants)
    else:
        make_update(op, model, options)(m, v, g, constants)
