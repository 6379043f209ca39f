"""Real intervals with mpmath's raw floating-point numbers as ends.

Claimed: each function's result contains every result of the real operation on members of its operands; `rounded` gives
every result of rounding a member, and `error` bounds every distance.

Trusted: `rounding`; that `mpf_add`, `mpf_sub`, `mpf_mul`, `mpf_div`, `mpf_sqrt` and `mpf_pos` of mpmath's `libmp` round
as directed.
For a sum that holds only when both operands have at most `PRECISION` bits (beside a longer one, a far smaller operand
counts as infinitesimal), and every end made here has.  The tests compare them with fractions.

They are what mpmath's own `iv` context computes with, case by case; here a divisor is positive and no end is
infinite, and fewer cases are left.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mpmath import libmp

from guarded_moments.oracle.intervals.protocol import UnboundedError
from guarded_moments.oracle.intervals.rounding import Rounding
from guarded_moments.reference.floats import BINARY32, round_down, round_up

#: A raw mpmath number: sign, odd mantissa, exponent, bits of the mantissa; zero is (0, 0, 0, 0).
Mpf = tuple[int, int, int, int]
#: Its least and its largest member.
Interval = tuple[Mpf, Mpf]

#: Bits of every end: enough that the ends' own rounding vanishes beside binary32's.
PRECISION = 64

# mpmath has no annotations: its functions get their types here, and `Any` goes no further.
_Binary = Callable[[Mpf, Mpf, int, str], Mpf]
_add: _Binary = libmp.mpf_add
_sub: _Binary = libmp.mpf_sub
_mul: _Binary = libmp.mpf_mul
_div: _Binary = libmp.mpf_div
_sqrt: Callable[[Mpf, int, str], Mpf] = libmp.mpf_sqrt
_round: Callable[[Mpf, int, str], Mpf] = libmp.mpf_pos
_less: Callable[[Mpf, Mpf], bool] = libmp.mpf_lt
_negative: Callable[[Mpf], Mpf] = libmp.mpf_neg
_from_man_exp: Callable[[int, int], Mpf] = libmp.from_man_exp
_to_rational: Callable[[Mpf], tuple[int, int]] = libmp.to_rational

ZERO: Mpf = (0, 0, 0, 0)
_DOWN, _UP, _NEAREST = "f", "c", "n"


def from_float(value: float) -> Mpf:
    """The number that a finite float is, exactly."""
    numerator, denominator = value.as_integer_ratio()
    return _from_man_exp(numerator, 1 - denominator.bit_length())


def to_fraction(x: Mpf) -> Fraction:
    """The number, exactly."""
    numerator, denominator = _to_rational(x)
    return Fraction(int(numerator), int(denominator))  # mpmath may hold the integers of another library


def from_ends(low: float, high: float) -> Interval:
    """The interval from one finite float to another, each with at most `PRECISION` significant bits."""
    return from_float(low), from_float(high)


def thin(value: float) -> Interval:
    """The interval of one finite float with at most `PRECISION` significant bits."""
    end = from_float(value)
    return end, end


def add(a: Interval, b: Interval) -> Interval:
    """`a + b`."""
    return _add(a[0], b[0], PRECISION, _DOWN), _add(a[1], b[1], PRECISION, _UP)


def sub(a: Interval, b: Interval) -> Interval:
    """`a - b`."""
    return _sub(a[0], b[1], PRECISION, _DOWN), _sub(a[1], b[0], PRECISION, _UP)


def negate(a: Interval) -> Interval:
    """`-a`."""
    return _negative(a[1]), _negative(a[0])


def mul(a: Interval, b: Interval) -> Interval:
    """`a * b`: the signs decide which ends meet (the first field of an end; zero counts as positive)."""
    (low, high), (least, most) = a, b
    if low[0]:
        if high[0] or not high[1]:  # a <= 0
            return negate(mul((_negative(high), _negative(low)), b))
        if not least[0]:  # a has both signs, b >= 0
            return _mul(low, most, PRECISION, _DOWN), _mul(high, most, PRECISION, _UP)
        if most[0] or not most[1]:  # b <= 0
            return _mul(high, least, PRECISION, _DOWN), _mul(low, least, PRECISION, _UP)
        return (
            smaller(_mul(low, most, PRECISION, _DOWN), _mul(high, least, PRECISION, _DOWN)),
            larger(_mul(low, least, PRECISION, _UP), _mul(high, most, PRECISION, _UP)),
        )
    # a >= 0: its larger end moves an end of b away from zero, its smaller end moves it towards zero
    return (
        _mul(high if least[0] else low, least, PRECISION, _DOWN),
        _mul(low if most[0] else high, most, PRECISION, _UP),
    )


def div(a: Interval, b: Interval) -> Interval:
    """`a / b` for `b > 0`.

    Raises:
        UnboundedError: `b` is not known to be positive.
    """
    (low, high), (least, most) = a, b
    if least[0] or not least[1]:
        raise UnboundedError
    return (
        _div(low, least if low[0] else most, PRECISION, _DOWN),
        _div(high, most if high[0] else least, PRECISION, _UP),
    )


def sqrt(a: Interval) -> Interval:
    """The square roots of `a >= 0`."""
    return _sqrt(a[0], PRECISION, _DOWN), _sqrt(a[1], PRECISION, _UP)


def smaller(x: Mpf, y: Mpf) -> Mpf:
    """The smaller of two numbers."""
    return x if _less(x, y) else y


def larger(x: Mpf, y: Mpf) -> Mpf:
    """The larger of two numbers."""
    return y if _less(x, y) else x


def intersect(a: Interval, b: Interval) -> Interval:
    """What both enclose; both hold the same number, so it is not empty."""
    return larger(a[0], b[0]), smaller(a[1], b[1])


def magnitude(a: Interval) -> Mpf:
    """The largest absolute value in `a`."""
    low, high = a
    if not low[0]:
        return high
    low = _negative(low)
    return low if high[0] else larger(low, high)


def mignitude(a: Interval) -> Mpf:
    """The smallest absolute value in `a`."""
    low, high = a
    if not low[0]:
        return low
    return _negative(high) if high[0] else ZERO


def add_up(x: Mpf, y: Mpf) -> Mpf:
    """`x + y`, rounded up."""
    return _add(x, y, PRECISION, _UP)


def sub_down(x: Mpf, y: Mpf) -> Mpf:
    """`x - y`, rounded down."""
    return _sub(x, y, PRECISION, _DOWN)


def is_positive(a: Interval) -> bool:
    """Whether `a > 0`."""
    low, _ = a
    return not low[0] and bool(low[1])


def is_negative(a: Interval) -> bool:
    """Whether `a < 0`."""
    _, high = a
    return bool(high[0])


def is_less(a: Interval, b: Interval) -> bool:
    """Whether `a < b`."""
    return _less(a[1], b[0])


def is_at_most(a: Interval, b: Interval) -> bool:
    """Whether `a <= b`."""
    return not _less(b[0], a[1])


def magnitudes(a: Interval) -> tuple[float, float]:
    """The smallest and the largest absolute value in `a`, rounded outwards to binary64."""
    return round_down(to_fraction(mignitude(a))), round_up(to_fraction(magnitude(a)))


def error(x: Mpf, rounding: Rounding) -> Mpf:
    """At least the error of rounding any number of magnitude at most `x >= 0`; zero stays zero."""
    _, mantissa, exponent, bits = x
    if not mantissa:
        return ZERO
    if rounding.underflow and _is_tiny(x):
        return _HALF_SUBNORMAL
    unit = (0, mantissa, exponent - BINARY32.precision, bits)
    return unit if rounding.units == 1 else _mul(unit, from_float(rounding.units), PRECISION, _UP)


def rounded(a: Interval, rounding: Rounding) -> Interval:
    """All results of rounding a member of `a`.

    Raises:
        UnboundedError: a member is beyond the largest finite value, so that its rounding may be infinite.
    """
    low, high = a
    if low[2] + low[3] > BINARY32.largest_exponent and _less(low, _LARGEST_NEGATIVE):
        raise UnboundedError
    if high[2] + high[3] > BINARY32.largest_exponent and _less(_LARGEST, high):
        raise UnboundedError
    if rounding.units > 1:
        return sub_down(low, error(low, rounding)), add_up(high, error(high, rounding))
    least, most = _nearest(low), _nearest(high)
    if rounding.underflow:
        # Below the normal range the grid is coarser than that.
        if _is_tiny(low):
            least = sub_down(low, _HALF_SUBNORMAL)
            least = least if low[0] else larger(least, ZERO)
        if _is_tiny(high):
            most = add_up(high, _HALF_SUBNORMAL)
            most = smaller(most, ZERO) if high[0] else most
    return least, most


def with_errors(difference: Interval, one: Interval, other: Interval, rounding: Rounding) -> Interval:
    """`difference`, plus the errors of rounding a member of `one` and a member of `other`."""
    low, high = difference
    errors = add_up(error(magnitude(one), rounding), error(magnitude(other), rounding))
    return sub_down(low, errors), add_up(high, errors)


def _nearest(x: Mpf) -> Mpf:
    """`x` rounded to nearest, ties to even, at the bits of a normal binary32."""
    return _round(x, BINARY32.precision, _NEAREST)


def _is_tiny(x: Mpf) -> bool:
    """Whether `0 < |x| < 2**-126`."""
    return bool(x[1]) and x[2] + x[3] < 2 - BINARY32.largest_exponent


_LARGEST = from_float(float(BINARY32.largest))
_LARGEST_NEGATIVE = from_float(-float(BINARY32.largest))
_HALF_SUBNORMAL = from_float(float(BINARY32.half_smallest_subnormal))
