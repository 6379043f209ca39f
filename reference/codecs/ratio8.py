"""ratio8: the second moment in eight bits on a logarithmic grid, the first in eight as a multiple of the other's root.

What Adam's update takes of a first moment is its ratio to the root of the second, and an error of that ratio is an
error of the update, however large or small the moments are.  So equal steps of the ratio waste nothing, where a grid
of the first moment itself is too fine for small ratios and too coarse for large ones.

    second moment   0 is exact zero, k > 0 is level k-1 of 255, as in `log8`
    first moment    a signed byte, the multiple, from -127 to 127; 0 is exact zero
    decoded         `T1[first] * T2[second]`, one product of binary32 numbers, rounded to nearest
                    T1 is multiple * step, exact, the step being a bfloat16
                    T2 is the root of the exact level, `2**((origin + i*pitch) / 2**17)`, correctly rounded; 0 of zero
    escape          first-moment byte 0x80, the multiple -128 that no encoder takes; the second byte is then 0

Claimed: `decode` is two look-ups and one product, of which none is subnormal or overflows; `encode` picks the level of
the second moment nearest in the logarithm, ties to the larger, clamps to the ends, and maps zero, and nothing else, to
zero; then the multiple of `step * T2` nearest to the first moment, ties to even, clamped to 127, and 0 beside a second
moment of zero: see `multiples`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.eight_bit import V_LEVELS, encode_magnitude, packed_units, unpacked_units
from guarded_moments.reference.codecs.grids import GridFamily, LogGrid
from guarded_moments.reference.codecs.multiples import (
    bits_of_steps,
    first_moment,
    nearest_multiple,
    require_steps,
    step_stated,
    steps_of_bits,
)
from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard
from guarded_moments.reference.codecs.ratio_ranges import LARGEST_MULTIPLE, choose_ratio
from guarded_moments.reference.codecs.tables import level_at
from guarded_moments.reference.errors import FormatError

ESCAPE = 0x80

#: Steps are below this: the product of 127 of them with the largest root, 2**63.75, does not overflow.
_STEPS_END = 2.0**57


@dataclass(frozen=True, eq=False)
class Ratio8:
    """The codec of one tensor: a grid and a step, or a family of grids and a step for each of its runs."""

    v_grid: LogGrid | GridFamily  #: logarithmic; origins and pitches even, so that roots lie on the table
    steps: Tensor  #: float32, (1,) or (groups,), values of bfloat16: what the first moment's code counts

    name: ClassVar[str] = "ratio8"
    summary: ClassVar[str] = "8 bits a moment, the first as a multiple of the second's root: fewer bits"
    code_type: ClassVar[torch.dtype] = torch.uint8
    granularities: ClassVar[bool] = True
    search_widens: ClassVar[float] = (
        1.1  #: at 1.3 a horizon of all updates, which no search decides, costs 0.7 bits more
    )
    by_rows: ClassVar[bool] = False
    reusable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Reject roots that are not on the table, and steps that are none."""
        grid = self.v_grid
        if isinstance(grid, GridFamily):
            even = not bool(((grid.origins | grid.pitches) & 1).any())
            fitting, wanted = grid.kind is LogGrid and even, len(grid.origins)
        else:
            fitting, wanted = not (grid.origin | grid.pitch) & 1, 1
        if not fitting:
            raise FormatError("the second moment's grids are logarithmic, with even origins and pitches")
        require_steps(self.steps, wanted, _STEPS_END)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same grids and steps."""
        if not isinstance(other, Ratio8):
            return NotImplemented
        return self.v_grid == other.v_grid and torch.equal(self.steps, other.steps)

    __hash__ = None  # type: ignore[assignment]  # data, not a key

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:
        """Choose grids and steps from the data; see `choose_ratio`."""
        return cls(*choose_ratio(m, v, V_LEVELS, guard, size))

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:
        """See `Codec`."""
        v_codes = encode_magnitude(v, self.v_grid, start)
        multiple = nearest_multiple(m, self._step(start, len(m)), self._root(v_codes, start), LARGEST_MULTIPLE)
        return Codes(multiple.to(torch.int8).view(torch.uint8), v_codes.to(torch.uint8))

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """See `Codec`; the first moment of an escape decodes to zero."""
        index = v_codes.long()
        m = first_moment(_multiples(m_codes), self._step(start, len(m_codes)), self._root(index, start))
        v = torch.where(index > 0, self.v_grid.level((index - 1).clamp(min=0), start), 0.0)
        return m, v

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """T1, T2 and what second moments decode to, of a tensor with one grid: float32, (256,), indexed by the byte."""
        every = torch.arange(256).to(torch.uint8)
        return (
            _multiples(every).float() * self.steps,
            self._root(every.long(), 0),
            self.decode(torch.zeros_like(every), every)[1],
        )

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:  # noqa: ARG002 - the first byte says it
        """See `Codec`."""
        return m_codes == ESCAPE

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """See `Codec`."""
        return Codes(codes.m.masked_fill(where, ESCAPE), codes.v.masked_fill(where, 0))

    def require_numel(self, numel: int) -> None:
        """See `Codec`."""
        if isinstance(self.v_grid, GridFamily):
            self.v_grid.require_numel(numel)

    def low_bits(self) -> tuple[int, int] | None:
        """See `Codec`: codes are bytes."""
        return None

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`: of one grid, its origin and pitch, and the sixteen bits of the step."""
        if isinstance(self.v_grid, GridFamily):
            return {"size": self.v_grid.size}
        return {"grid": [self.v_grid.origin, self.v_grid.pitch], "step": int(bits_of_steps(self.steps)) & 0xFFFF}

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`: of a family, origins and pitches in coarse units, and the bits of the steps."""
        if not isinstance(self.v_grid, GridFamily):
            return {}
        return {
            "v_origins": packed_units(self.v_grid.origins, LogGrid.origin_unit),
            "v_pitches": packed_units(self.v_grid.pitches, LogGrid.pitch_unit),
            "m_steps": bits_of_steps(self.steps),
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        if "size" in parameters:
            origins = unpacked_units(tensors["v_origins"], LogGrid.origin_unit, signed=True)
            pitches = unpacked_units(tensors["v_pitches"], LogGrid.pitch_unit, signed=False)
            steps = steps_of_bits(unpacked_units(tensors["m_steps"], 1, signed=False))
            grid: LogGrid | GridFamily = GridFamily(LogGrid, origins, pitches, V_LEVELS, int(parameters["size"]))
        else:
            origin, pitch = parameters["grid"]
            grid, steps = LogGrid.of_units(origin, pitch, V_LEVELS), step_stated(parameters["step"])
        return cls(grid, steps)

    def _step(self, start: int, count: int) -> Tensor:
        """The step of each coordinate, or the one of all."""
        return self.steps[self.v_grid.groups(start, count)] if isinstance(self.v_grid, GridFamily) else self.steps

    def _root(self, v_codes: Tensor, start: int) -> Tensor:
        """T2 of second-moment codes, int64; float32."""
        index = (v_codes - 1).clamp(min=0)
        if isinstance(self.v_grid, GridFamily):
            group = self.v_grid.groups(start, len(v_codes))
            roots = level_at((self.v_grid.origins[group] + index * self.v_grid.pitches[group]) // 2)
        else:
            roots = _roots(self.v_grid)[index]
        return torch.where(v_codes > 0, roots, 0.0)


@lru_cache(maxsize=4096)
def _roots(grid: LogGrid) -> Tensor:
    """Of the exact levels, correctly rounded: float32 of shape (grid.levels,), strictly increasing; only to be read."""
    return level_at((grid.origin + torch.arange(grid.levels) * grid.pitch) // 2)


def _multiples(m_codes: Tensor) -> Tensor:
    """Of first-moment codes; 0 of the escape; int64."""
    return m_codes.contiguous().view(torch.int8).masked_fill(m_codes == ESCAPE, 0).long()
