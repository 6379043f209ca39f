"""What the pairs and the search need of real intervals, whatever they are made of."""

from __future__ import annotations

from typing import Protocol, TypeVar

from guarded_moments.oracle.intervals.rounding import Rounding

T = TypeVar("T")


class UnboundedError(ArithmeticError):
    """A binary32 operation may overflow, or divide by zero, somewhere in a cell."""


class Intervals(Protocol[T]):
    """Operations on intervals: each result contains every result of the real operation on members of the operands.

    Comparisons are true only where they hold of all members.
    """

    def from_ends(self, low: float, high: float, /) -> T:
        """What contains the numbers from one finite binary32 to another."""
        ...

    def thin(self, value: float, /) -> T:
        """One finite binary64, exactly."""
        ...

    def add(self, a: T, b: T, /) -> T:
        """`a + b`."""
        ...

    def sub(self, a: T, b: T, /) -> T:
        """`a - b`."""
        ...

    def negate(self, a: T, /) -> T:
        """`-a`; exact."""
        ...

    def mul(self, a: T, b: T, /) -> T:
        """`a * b`."""
        ...

    def div(self, a: T, b: T, /) -> T:
        """`a / b` for `b > 0`; raises `UnboundedError` where `b` is not known to be positive."""
        ...

    def sqrt(self, a: T, /) -> T:
        """The square roots of the members that are not negative."""
        ...

    def intersect(self, a: T, b: T, /) -> T:
        """What both contain; both contain the same number, so it is not empty."""
        ...

    def is_positive(self, a: T, /) -> bool:
        """Whether `a > 0`."""
        ...

    def is_negative(self, a: T, /) -> bool:
        """Whether `a < 0`."""
        ...

    def is_less(self, a: T, b: T, /) -> bool:
        """Whether `a < b`."""
        ...

    def is_at_most(self, a: T, b: T, /) -> bool:
        """Whether `a <= b`."""
        ...

    def magnitudes(self, a: T, /) -> tuple[float, float]:
        """At most the smallest and at least the largest absolute value in `a`."""
        ...

    def rounded(self, a: T, rounding: Rounding, /) -> T:
        """All results of rounding a member; raises `UnboundedError` where one may be infinite."""
        ...

    def with_errors(self, difference: T, one: T, other: T, rounding: Rounding, /) -> T:
        """`difference`, plus the errors of rounding a member of `one` and a member of `other`."""
        ...
