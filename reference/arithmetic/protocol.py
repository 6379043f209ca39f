"""The operations that an Adam step and a guard are made of, in one number domain.

One source of each formula is written against these protocols and run with binary32 arrays (the bit-exact
reference), binary64 tensors (the guard), rounding counts (the guard's own slack), mpmath intervals (the
independent oracle) and others.  Each method is exactly one rounding of the exact result unless it says *exact*.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Arithmetic(Protocol[T]):
    """What an op model needs."""

    def constant(self, value: float) -> T:
        """A scalar that the kernel holds, already rounded to the kernel's format; exact."""
        ...

    def add(self, a: T, b: T) -> T:
        """`a + b`."""
        ...

    def sub(self, a: T, b: T) -> T:
        """`a - b`."""
        ...

    def mul(self, a: T, b: T) -> T:
        """`a * b`."""
        ...

    def product(self, a: T, b: T) -> T:
        """`a * b` without rounding, in a wider format where one is needed: only ever a result."""
        ...

    def div(self, a: T, b: T) -> T:
        """`a / b`."""
        ...

    def fma(self, a: T, b: T, c: T) -> T:
        """`a * b + c`, rounded once."""
        ...

    def sqrt(self, a: T) -> T:
        """The correctly rounded square root."""
        ...

    def platform_sqrt(self, a: T) -> T:
        """The square root of the platform's vector library (`torch.sqrt` on CPU): a named black box."""
        ...

    def negate(self, a: T) -> T:
        """`-a`; exact."""
        ...

    def select_less(self, a: T, b: T, if_less: T, otherwise: T) -> T:
        """`if_less` where `a < b`, else `otherwise` (also where either is NaN); exact."""
        ...

    def select_nan(self, a: T, if_nan: T, otherwise: T) -> T:
        """`if_nan` where `a` is NaN, else `otherwise`; exact."""
        ...


class OrderedArithmetic(Protocol[T]):
    """What a guard needs: no fused operation, but order and magnitude."""

    def constant(self, value: float) -> T:
        """A scalar of the formula: TINY, one, or a counted error, exact or rounded once."""
        ...

    def add(self, a: T, b: T) -> T:
        """`a + b`."""
        ...

    def mul(self, a: T, b: T) -> T:
        """`a * b`."""
        ...

    def div(self, a: T, b: T) -> T:
        """`a / b`."""
        ...

    def sqrt(self, a: T) -> T:
        """The square root, within one unit in the last place of the correctly rounded one."""
        ...

    def distance(self, a: T, b: T) -> T:
        """`|a - b|` of two exact inputs."""
        ...

    def absolute(self, a: T) -> T:
        """`|a|`; exact."""
        ...

    def minimum(self, a: T, b: T) -> T:
        """The smaller; exact."""
        ...

    def maximum(self, a: T, b: T) -> T:
        """The larger; exact."""
        ...


class SignedArithmetic(OrderedArithmetic[T], Protocol[T]):
    """What a search needs besides: signed sums, whose cancellation the caller accounts for."""

    def sub(self, a: T, b: T) -> T:
        """`a - b`."""
        ...

    def negate(self, a: T) -> T:
        """`-a`; exact."""
        ...
