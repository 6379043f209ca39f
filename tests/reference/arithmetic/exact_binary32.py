"""Binary32 arithmetic on rationals, one value at a time: slow and obvious, and nothing of the package in it.

An operand is a binary32 value in a Python float; a result is 32 bits, `NAN` for every NaN.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from tests.strategies import INFINITY, NAN, SIGN


def round_to_nearest_even(value: Fraction, *, minus_zero: bool = False) -> int:
    """The bits of the binary32 nearest to `value`; of two as near, the one with the even last bit.

    Args:
        value: any rational.
        minus_zero: the sign of the result where `value` is exactly zero.
    """
    if value == 0:
        return SIGN if minus_zero else 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, -126)  # subnormals have the spacing of the smallest binade
    units, rest = divmod(magnitude / Fraction(2) ** (exponent - 23), 1)
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and units % 2 == 1):
        units += 1
    # Consecutive values have consecutive bits, across binades and up to infinity.
    bits = ((exponent + 126) << 23) + int(units)
    return min(bits, INFINITY) | (SIGN if value < 0 else 0)


def add(a: float, b: float) -> int:
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b) and a != b):
        return NAN
    if math.isinf(a) or math.isinf(b):
        return _infinity(a if math.isinf(a) else b)
    return round_to_nearest_even(Fraction(a) + Fraction(b), minus_zero=_negative(a) and _negative(b))


def sub(a: float, b: float) -> int:
    return add(a, -b)


def mul(a: float, b: float) -> int:
    negative = _negative(a) != _negative(b)
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and b == 0) or (a == 0 and math.isinf(b)):
        return NAN
    if math.isinf(a) or math.isinf(b):
        return _infinity(-1 if negative else 1)
    return round_to_nearest_even(Fraction(a) * Fraction(b), minus_zero=negative)


def div(a: float, b: float) -> int:
    negative = _negative(a) != _negative(b)
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or a == b == 0:
        return NAN
    if math.isinf(a) or b == 0:
        return _infinity(-1 if negative else 1)
    quotient = Fraction(0) if math.isinf(b) else Fraction(a) / Fraction(b)
    return round_to_nearest_even(quotient, minus_zero=negative)


def fma(a: float, b: float, c: float) -> int:
    negative = _negative(a) != _negative(b)
    if math.isnan(a) or math.isnan(b) or math.isnan(c) or (math.isinf(a) and b == 0) or (a == 0 and math.isinf(b)):
        return NAN
    if math.isinf(a) or math.isinf(b):
        return NAN if math.isinf(c) and _negative(c) != negative else _infinity(-1 if negative else 1)
    if math.isinf(c):
        return _infinity(c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return round_to_nearest_even(exact, minus_zero=negative and _negative(c))


def sqrt(a: float) -> int:
    if math.isnan(a) or a < 0:
        return NAN
    if a == 0:
        return SIGN if _negative(a) else 0
    if math.isinf(a):
        return _infinity(a)
    # 200 bits of the root after the point, and one more that says whether anything follows: no tie is missed.
    scaled = Fraction(a) * 4**200
    root = math.isqrt(int(scaled))
    more = root**2 != scaled
    return round_to_nearest_even(Fraction(2 * root + more, 2**201))


OPERATIONS: Mapping[str, Callable[..., int]] = MappingProxyType(
    {"add": add, "sub": sub, "mul": mul, "div": div, "fma": fma, "sqrt": sqrt}
)


def _negative(value: float) -> bool:
    return math.copysign(1, value) < 0


def _infinity(sign: float) -> int:
    return INFINITY | (SIGN if sign < 0 else 0)
