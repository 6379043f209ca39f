"""How often a non-negative quantity was rounded: the guard run in this domain yields its own slack.

An element is an integer `k` with the meaning: the computed value `f` and the exact value `X` of the same formula
satisfy `t**k * X <= f` and `t**k * f <= X`, where `t = 1 - 2**-53`.  Every quantity of a guard is non-negative and is
built from exact inputs by sums, products, quotients, roots and distances of inputs, so that nothing cancels and the
rules below are sound in the absence of overflow and underflow of binary64, which `guard.binary64_range` sees to.
"""

from __future__ import annotations

from fractions import Fraction
from typing import final

from guarded_moments.reference.floats import BINARY64

#: A root within one unit in the last place of the correctly rounded one errs by at most three half units.
_ROOT_ROUNDINGS = 3
#: A precomputed constant is within one unit in the last place of the number it stands for: two half units.
_CONSTANT_ROUNDINGS = 2


@final
class RoundingCount:
    """Counts of half units in the last place, propagated through a formula on non-negative numbers."""

    #: An input that binary64 holds exactly.
    exact = 0

    def constant(self, value: float) -> int:  # noqa: ARG002 - the protocol's signature; the count is the same for all
        """A precomputed constant."""
        return _CONSTANT_ROUNDINGS

    def add(self, a: int, b: int) -> int:
        """A sum of non-negative numbers is as good as its worse operand, rounded once."""
        return max(a, b) + 1

    def mul(self, a: int, b: int) -> int:
        """Relative errors add up, and one rounding."""
        return a + b + 1

    def div(self, a: int, b: int) -> int:
        """Relative errors add up, and one rounding."""
        return a + b + 1

    def sqrt(self, a: int) -> int:
        """A root halves the relative error, rounded up, and adds its own."""
        return -(-a // 2) + _ROOT_ROUNDINGS

    def distance(self, a: int, b: int) -> int:
        """`|a - b|` of exact inputs only: one rounding.

        Raises:
            ValueError: an operand was rounded before, so that the difference could cancel.
        """
        if a != self.exact or b != self.exact:
            msg = f"the distance of rounded quantities (counts {a} and {b}) has no bounded relative error"
            raise ValueError(msg)
        return 1

    def absolute(self, a: int) -> int:
        """Exact."""
        return a

    def minimum(self, a: int, b: int) -> int:
        """As good as the worse operand."""
        return max(a, b)

    def maximum(self, a: int, b: int) -> int:
        """As good as the worse operand."""
        return max(a, b)


def inflation(count: int) -> Fraction:
    """The exact factor `t**-count` by which a computed value may fall short of the exact one."""
    return 1 / (1 - BINARY64.unit_roundoff) ** count
