"""Bounds on the deviation over a whole cell of gradients, in real arithmetic evaluated in binary64.

For one coordinate, over the step size, and with the negative gradients folded onto the positive by the sign of `w g`:

    N(g) = (1-w)(m_hat - m) H_hat(g) + ((1-w) m + w g) (H_hat(g) - H(g))
    H(g) = 1/(sqrt(radicand*v + curvature*g*g) + eps)

On a cell `low <= |g| <= high` the reciprocal `H_hat` decreases, and `H_hat - H` keeps its sign and shrinks, so that
the end points bound both products with the cancellation between them kept.  Towards infinity `|w g (H_hat - H)|` is at
most `(w/q) |H_hat - H|(low) / H_hat(low)`, because `q |g| <= sqrt(...)`.

Claimed: `upper` is at least `|N(g)|` for every `g` of the cell, its own rounding included.  Nothing here knows about
binary32 rounding of the updates: callers add the slack of both trajectories, or ask the bit-exact op model.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.floats import BINARY64
from guarded_moments.reference.guard.constants import TINY, GuardConstants

T = TypeVar("T")


class States(NamedTuple):
    """Native and recovered moments of coordinates in the guard's domain: float32 tensors of one shape (n,)."""

    m: Tensor
    v: Tensor
    m_hat: Tensor
    v_hat: Tensor

    def select(self, index: Tensor) -> States:
        """The coordinates at an index or mask."""
        return States(*(moment[index] for moment in self))


class Cells(NamedTuple):
    """Ranges of gradient magnitudes, with what is needed of their end points; float64 tensors of one shape."""

    coordinate: Tensor  #: int64: which one, by its position in the states
    low: Tensor  #: binary32 values
    high: Tensor
    reciprocal_low: Tensor  #: H_hat(low)
    reciprocal_high: Tensor
    difference_low: Tensor  #: H_hat(low) - H(low)
    difference_high: Tensor

    def select(self, index: Tensor) -> Cells:
        """The cells at an index or mask."""
        places = index.nonzero().flatten() if index.dtype is torch.bool else index
        return Cells(*(part[places] for part in self))

    @classmethod
    def joined(cls, first: Cells, second: Cells) -> Cells:
        """Both, one after the other."""
        return cls(*(torch.cat(pair) for pair in zip(first, second, strict=True)))

    @property
    def floats_inside(self) -> Tensor:
        """How many binary32 magnitudes a cell spans, less one; int64."""
        return self.high.float().view(torch.int32).long() - self.low.float().view(torch.int32).long()


def reciprocals(op: OrderedArithmetic[T], constants: GuardConstants, v: T, v_hat: T, gap: T, g: T) -> tuple[T, T]:
    """`H_hat(g)` and `|H_hat(g) - H(g)|`, free of cancellation.

    Args:
        op: a number domain.
        constants: of the tensor.
        v: native second moment.
        v_hat: recovered second moment.
        gap: `radicand * |v_hat - v|`.
        g: a gradient's magnitude.
    """
    constant, add, mul, div = op.constant, op.add, op.mul, op.div
    one, eps, radicand = constant(1.0), constant(constants.eps), constant(constants.radicand)
    bend = mul(constant(constants.curvature), mul(g, g))
    root, root_hat = op.sqrt(add(mul(radicand, v), bend)), op.sqrt(add(mul(radicand, v_hat), bend))
    reciprocal, reciprocal_hat = div(one, add(root, eps)), div(one, add(root_hat, eps))
    both = mul(reciprocal, reciprocal_hat)
    return reciprocal_hat, div(mul(gap, both), op.maximum(add(root, root_hat), constant(TINY)))


@cache
def _relative_error() -> float:
    """What each product of a cell bound may err by, relative to its magnitude: counted from the source above."""
    op, ones = RoundingCount(), GuardConstants(*[1.0] * len(GuardConstants._fields))
    gap = op.mul(op.constant(1.0), op.distance(op.exact, op.exact))
    reciprocal, difference = reciprocals(op, ones, op.exact, op.exact, gap, op.exact)
    complement = op.constant(1.0)
    first = op.mul(op.mul(complement, op.distance(op.exact, op.exact)), reciprocal)
    weight = op.add(op.mul(complement, op.exact), op.mul(op.constant(1.0), op.exact))
    product = op.mul(weight, difference)
    tail = op.div(op.mul(op.constant(1.0), difference), reciprocal)
    count = op.add(first, op.add(product, tail))
    return 2 * count * float(BINARY64.unit_roundoff)  # twice: (1-u)**-k <= 1 + 2ku for these k


class CellBounds:
    """Evaluates coordinates of one tensor at gradients, and bounds them over cells."""

    def __init__(self, constants: GuardConstants, states: States) -> None:
        """Prepare the terms that do not depend on the gradient.

        Args:
            constants: of the tensor.
            states: coordinates in the guard's domain.
        """
        m, v, m_hat, v_hat = (moment.double() for moment in states)
        self._constants = constants
        self._v, self._v_hat = v, v_hat
        self._shift = constants.complement * (m_hat - m)
        self._pull = constants.complement * m
        self._gap = constants.radicand * (v - v_hat)  # signed: H_hat > H exactly where v_hat < v
        self._tail = constants.w * constants.gap_cap

    def scale(self) -> Tensor:
        """Where `H` starts to bend: the gradient magnitude at which `curvature*g*g` matches the rest; float64 (n,)."""
        smaller = torch.minimum(self._v, self._v_hat) * self._constants.radicand
        return (smaller.sqrt() + self._constants.eps) * self._constants.gap_cap

    def at(self, g: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`H_hat(g)` and `H_hat(g) - H(g)` of all coordinates, or of those at `index`."""
        v, v_hat, gap = self._v, self._v_hat, self._gap
        if index is not None:
            v, v_hat, gap = v[index], v_hat[index], gap[index]
        constants = self._constants
        bend = constants.curvature * (g * g)
        root, root_hat = (constants.radicand * v + bend).sqrt_(), (constants.radicand * v_hat + bend).sqrt_()
        total = (root + root_hat).clamp_(min=TINY)
        reciprocal_hat = root_hat.add_(constants.eps).reciprocal_()
        difference = gap * (reciprocal_hat / root.add_(constants.eps)) / total
        return reciprocal_hat, difference

    def values(
        self, g: Tensor, reciprocal: Tensor, difference: Tensor, index: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`|N|` at `+g` and at `-g`, as evaluated (without slack)."""
        shift, pull = (self._shift, self._pull) if index is None else (self._shift[index], self._pull[index])
        base, slope = shift * reciprocal + pull * difference, self._constants.w * g * difference
        return (base + slope).abs(), (base - slope).abs()

    def upper(self, cells: Cells) -> Tensor:
        """At least `|N(g)|` for every `g` with `low <= |g| <= high`, of either sign."""
        shift, pull = self._shift[cells.coordinate], self._pull[cells.coordinate]
        return self._upper(shift, pull, cells)

    def upper_of_rows(self, g: Tensor, reciprocal: Tensor, difference: Tensor) -> Tensor:
        """`upper` for all coordinates between consecutive rows of gradients, shapes (k, n); returns (k-1, n)."""
        rows = Cells(g, g[:-1], g[1:], reciprocal[:-1], reciprocal[1:], difference[:-1], difference[1:])
        return self._upper(self._shift, self._pull, rows)

    def _upper(self, shift: Tensor, pull: Tensor, cells: Cells) -> Tensor:
        weight_low, weight_high = self._constants.w * cells.low, self._constants.w * cells.high
        first_low, first_high = shift * cells.reciprocal_low, shift * cells.reciprocal_high
        first_most, first_least = torch.maximum(first_low, first_high), torch.minimum(first_low, first_high)
        by_ends = torch.zeros_like(weight_low)
        for sign in (1.0, -1.0):
            near, far = torch.add(pull, weight_low, alpha=sign), torch.add(pull, weight_high, alpha=sign)
            a, b = near * cells.difference_low, near * cells.difference_high
            c, d = far * cells.difference_low, far * cells.difference_high
            most = torch.maximum(torch.maximum(a, b), torch.maximum(c, d)).add_(first_most)
            least = torch.minimum(torch.minimum(a, b), torch.minimum(c, d)).add_(first_least)
            by_ends = torch.maximum(by_ends, torch.maximum(most, least.neg_()))
        # The magnitudes that entered, for the rounding of this evaluation, and the bound that holds to infinity.
        difference, pull_size = cells.difference_low.abs(), pull.abs()
        start = (shift * cells.reciprocal_low).abs_() + pull_size * difference
        by_ends += _relative_error() * (start + weight_high * difference)
        to_infinity = (start + self._tail * difference / cells.reciprocal_low) * (1 + _relative_error())
        return torch.minimum(by_ends, to_infinity)
