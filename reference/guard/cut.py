"""Where the gradients of a claim are cut into cells: the ends of the first ones, and the place where a cell is split.

    scale      (sqrt(radicand*min(v, v_hat)) + eps) / q     where the larger of both reciprocals starts to bend
    first end  a share of the scale, at most the claim's largest gradient
    cut        4*low in a cell whose ends are far apart, else its middle; half of a cell that begins at zero

Every end is a binary32 value, so that a cell of two neighbours holds no other gradient.

Claimed: `low <= cut <= high` (`proofs.cover`).  Which ends come first and where a cell is cut decides how long a search
takes, and nothing else: whatever the ends are, a gradient is on one side of each or on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from guarded_moments.reference.adam import Jit, as_is
from guarded_moments.reference.arithmetic.protocol import SignedArithmetic
from guarded_moments.reference.guard.constants import GuardConstants

T = TypeVar("T")

#: End points of the first cells, in units of the scale; the last is the bound itself.
FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)
#: A cell whose ends are further apart than this ratio is cut at `CUT` times its low end, else in the middle.
LONG, CUT = 16.0, 4.0


class CuttingArithmetic(SignedArithmetic[T], Protocol[T]):
    """What ends and cuts need besides."""

    def nearest(self, a: T) -> T:
        """The binary32 value nearest to a binary64 one, held in binary64."""
        ...

    def select_less(self, a: T, b: T, if_less: T, otherwise: T) -> T:
        """`if_less` where `a < b`, else `otherwise`; exact."""
        ...


def make_scale(op: SignedArithmetic[T], jit: Jit = as_is) -> Callable[[GuardConstants[T], T, T], T]:
    """Build `scale(constants, v, v_hat)`: a gradient's magnitude at which `curvature*g*g` matches the rest."""
    add, mul, sqrt, minimum = op.add, op.mul, op.sqrt, op.minimum

    def scale(k: GuardConstants[T], v: T, v_hat: T) -> T:
        return mul(add(sqrt(mul(k.radicand, minimum(v, v_hat))), k.eps), k.gap_cap)

    result: Callable[[GuardConstants[T], T, T], T] = jit(scale)
    return result


def make_first_end(op: CuttingArithmetic[T], jit: Jit = as_is) -> Callable[[T, T, T], T]:
    """Build `first_end(share, scale, limit)`: the share of the scale, or the largest gradient."""
    mul, minimum, nearest = op.mul, op.minimum, op.nearest

    def first_end(share: T, scale: T, limit: T) -> T:
        return nearest(minimum(mul(share, scale), limit))

    result: Callable[[T, T, T], T] = jit(first_end)
    return result


def make_cut(op: CuttingArithmetic[T], jit: Jit = as_is) -> Callable[[T, T], T]:
    """Build `cut(low, high)` of a cell of magnitudes that are binary32 values."""
    add, mul, nearest, select_less = op.add, op.mul, op.nearest, op.select_less
    zero, half, long, far = (op.constant(value) for value in (0.0, 0.5, LONG, CUT))

    def cut(low: T, high: T) -> T:
        above_zero = select_less(mul(long, low), high, mul(far, low), mul(half, add(low, high)))
        return nearest(select_less(zero, low, above_zero, mul(half, high)))

    result: Callable[[T, T], T] = jit(cut)
    return result
