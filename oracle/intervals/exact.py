"""Binary32 on exact fractions: every operation exact, then rounded to nearest, ties to even, with integers.

Claimed: each method returns the IEEE 754 result, subnormals included (the sign of a zero is not modelled, and no
distance of updates depends on it).  Trusted: Python's integers and `fractions`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import final

from guarded_moments.oracle.intervals.protocol import UnboundedError
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32

_SPACING_EXPONENT = 1 - BINARY32.smallest_subnormal.denominator.bit_length()  #: of the grid around zero
_ROOT_BITS = 2 * BINARY32.precision + 8  #: of a radicand: its root has more bits than the format


def round_to_nearest(x: Fraction) -> Fraction:
    """The binary32 nearest to `x`, of two the one with the even significand.

    Raises:
        UnboundedError: it is infinite.
    """
    magnitude = x.numerator.bit_length() - x.denominator.bit_length()
    for exponent in (magnitude, magnitude - 1):  # 2**exponent <= |x| holds for one of them
        if abs(x.numerator) << max(0, -exponent) >= x.denominator << max(0, exponent):
            break
    exponent = max(exponent - BINARY32.precision + 1, _SPACING_EXPONENT)
    numerator, denominator = x.numerator << max(0, -exponent), x.denominator << max(0, exponent)
    whole, rest = divmod(numerator, denominator)
    whole += 2 * rest > denominator or (2 * rest == denominator and whole & 1)
    result = Fraction(whole << max(0, exponent), 1 << max(0, -exponent))
    if abs(result) > BINARY32.largest:
        raise UnboundedError
    return result


@final
class FractionBinary32:
    """Rounded binary32 operations on fractions; none may overflow or divide by zero."""

    def constant(self, value: float) -> Fraction:
        """A finite float, exactly."""
        return Fraction(value)

    def add(self, a: Fraction, b: Fraction) -> Fraction:
        """`a + b`."""
        return round_to_nearest(a + b)

    def sub(self, a: Fraction, b: Fraction) -> Fraction:
        """`a - b`."""
        return round_to_nearest(a - b)

    def mul(self, a: Fraction, b: Fraction) -> Fraction:
        """`a * b`."""
        return round_to_nearest(a * b)

    def product(self, a: Fraction, b: Fraction) -> Fraction:
        """`a * b`, not rounded."""
        return a * b

    def div(self, a: Fraction, b: Fraction) -> Fraction:
        """`a / b`."""
        return round_to_nearest(a / b)

    def fma(self, a: Fraction, b: Fraction, c: Fraction) -> Fraction:
        """`a * b + c`, rounded once."""
        return round_to_nearest(a * b + c)

    def sqrt(self, a: Fraction) -> Fraction:
        """The correctly rounded root: an integer root, and one more bit that says whether it is exact."""
        exponent = a.denominator.bit_length() - 1  # a binary32 is an integer over a power of two
        shift = max(0, _ROOT_BITS - a.numerator.bit_length())
        shift += (shift + exponent) & 1
        radicand = a.numerator << shift
        root = math.isqrt(radicand)
        root = 2 * root + (root * root < radicand)
        return round_to_nearest(Fraction(root, 2 ** ((shift + exponent) // 2 + 1)))

    def platform_sqrt(self, a: Fraction) -> Fraction:  # noqa: ARG002 - the protocol's signature
        """Unknown here.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("the platform's root is a black box: it has no exact model")

    def negate(self, a: Fraction) -> Fraction:
        """`-a`."""
        return -a

    def select_less(self, a: Fraction, b: Fraction, if_less: Fraction, otherwise: Fraction) -> Fraction:
        """`if_less` where `a < b`, else `otherwise`."""
        return if_less if a < b else otherwise

    def select_nan(self, a: Fraction, if_nan: Fraction, otherwise: Fraction) -> Fraction:  # noqa: ARG002 - as above
        """`otherwise`: a fraction is never NaN."""
        return otherwise
