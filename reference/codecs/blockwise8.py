"""blockwise8: each moment in eight bits on the dynamic map of 8-bit optimizers, scaled by the largest of each block.

A block is 256 coordinates in memory order, the last one maybe fewer; its scale is the largest magnitude in it, stored
as binary32.  The map (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022) has ever more values the
nearer they are to the largest, over seven decades; signed for the first moment, and unsigned for the second.

    escape    first-moment code 0 (the most negative) with second-moment code 0 (zero)

The map is full, so the escape is a pair of codes that hardly any coordinate has, and none that a guard would accept
unless `eps` is huge: a large first moment whose second rounds to zero.

Claimed: `encode` picks the value of the map nearest to `x / scale` rounded to binary32, ties to the larger; `decode` is
one rounded product.  The map is this rule's, each value correctly rounded; other libraries' differ from it, and from
each other, in last places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard
from guarded_moments.reference.errors import FormatError
from guarded_moments.reference.floats import round_to_binary32
from guarded_moments.reference.guard import in_domain

BLOCK = 256
_DECADES = 7


class DynamicMap(NamedTuple):
    """The values of a map and where the nearest changes."""

    values: Tensor  #: float32, (256,), strictly increasing
    thresholds: Tensor  #: float32, (255,): the smallest binary32 that is at least the mean of two neighbours
    zero: int  #: the code of zero


@lru_cache(maxsize=2)
def dynamic_map(*, signed: bool) -> DynamicMap:
    """Seven decades, each cut into twice as many values as the one below; zero and one."""
    magnitudes = []
    for decade in range(_DECADES):
        count = 1 << (decade if signed else decade + 1)
        for j in range(count):
            mean = Fraction(1, 10) + Fraction(9, 10) * Fraction(2 * j + 1, 2 * count)
            magnitudes.append(Fraction(10) ** (decade + 1 - _DECADES) * mean)
    negative = [-x for x in reversed(magnitudes)] if signed else []
    exact = [*negative, Fraction(0), *magnitudes, Fraction(1)]
    values = torch.tensor([round_to_binary32(float(x)) for x in exact], dtype=torch.float32)
    middles = (values[1:].double() + values[:-1].double()) / 2  # exact: two binary32 of like size, or nearly so
    nearest = middles.float()
    up = torch.nextafter(nearest, torch.full_like(nearest, torch.inf))
    return DynamicMap(values, torch.where(nearest.double() < middles, up, nearest), len(negative))


@dataclass(frozen=True, eq=False)
class Blockwise8:
    """The codec of one tensor: a scale for each block of each moment."""

    m_scales: Tensor  #: float32, (blocks,), finite, not negative
    v_scales: Tensor

    name: ClassVar[str] = "blockwise8"
    summary: ClassVar[str] = "8 bits a moment, blocks of 256 scaled by their largest: what 8-bit optimizers do"
    code_type: ClassVar[torch.dtype] = torch.uint8
    granularities: ClassVar[bool] = False
    search_widens: ClassVar[float] = 1.3
    by_rows: ClassVar[bool] = False
    reusable: ClassVar[bool] = False

    def __eq__(self, other: object) -> bool:
        """Whether both have the same scales."""
        if not isinstance(other, Blockwise8):
            return NotImplemented
        return torch.equal(self.m_scales, other.m_scales) and torch.equal(self.v_scales, other.v_scales)

    __hash__ = None  # type: ignore[assignment]  # data, not a key

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:  # noqa: ARG003 - the rule is fixed
        """See `Codec`; the scales are those of the coordinates that the guard speaks about."""
        covered = in_domain(m, v)
        m_scales, v_scales = (_largest(torch.where(covered, x, 0.0).abs()) for x in (m, v))
        return cls(m_scales, v_scales)

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:
        """See `Codec`."""
        return Codes(
            _encoded(m, _spread(self.m_scales, start, len(m)), dynamic_map(signed=True)),
            _encoded(v, _spread(self.v_scales, start, len(v)), dynamic_map(signed=False)),
        )

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """See `Codec`."""
        return (
            dynamic_map(signed=True).values[m_codes.long()] * _spread(self.m_scales, start, len(m_codes)),
            dynamic_map(signed=False).values[v_codes.long()] * _spread(self.v_scales, start, len(v_codes)),
        )

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:
        """See `Codec`."""
        return (m_codes == 0) & (v_codes == dynamic_map(signed=False).zero)

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """See `Codec`."""
        return Codes(codes.m.masked_fill(where, 0), codes.v.masked_fill(where, dynamic_map(signed=False).zero))

    def require_numel(self, numel: int) -> None:
        """See `Codec`."""
        if not len(self.m_scales) == len(self.v_scales) == -(-numel // BLOCK):
            raise FormatError(f"{len(self.m_scales)} scales do not fit {numel} coordinates in blocks of {BLOCK}")

    def low_bits(self) -> tuple[int, int] | None:
        """See `Codec`: codes are bytes."""
        return None

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`: none but the scales."""
        return {}

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`."""
        return {"m_scales": self.m_scales, "v_scales": self.v_scales}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        scales = (tensors["m_scales"], tensors["v_scales"])
        if parameters or any(x.dtype is not torch.float32 or x.ndim != 1 or not _are_scales(x) for x in scales):
            raise FormatError("scales of blocks are finite float32 numbers that are not negative")
        return cls(*scales)


def _are_scales(values: Tensor) -> bool:
    return bool((values.isfinite() & (values >= 0)).all())


def _largest(magnitudes: Tensor) -> Tensor:
    padding = -len(magnitudes) % BLOCK
    return torch.nn.functional.pad(magnitudes, (0, padding)).view(-1, BLOCK).amax(dim=1)


def _spread(scales: Tensor, start: int, count: int) -> Tensor:
    """The scale of each coordinate."""
    first, last = start // BLOCK, -(-(start + count) // BLOCK)
    begin = start - first * BLOCK
    return scales[first:last].repeat_interleave(BLOCK)[begin : begin + count]


def _encoded(values: Tensor, scale: Tensor, dynamic: DynamicMap) -> Tensor:
    # Where the scale is zero every value is.
    ratio = values / torch.where(scale > 0, scale, 1.0)
    return torch.bucketize(ratio.contiguous(), dynamic.thresholds, right=True).to(torch.uint8)
