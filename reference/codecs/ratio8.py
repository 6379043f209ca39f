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
moment of zero.  The quotient in binary64 decides rightly: `step * T2` has 32 bits and is exact, so that the quotient of
24 bits by 32 is a half-integer or at least `2**-33` from each, and below 128 it is rounded by `2**-47` at most.
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
from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard
from guarded_moments.reference.codecs.ratio_ranges import LARGEST_MULTIPLE, choose_ratio
from guarded_moments.reference.codecs.tables import level_at
from guarded_moments.reference.errors import FormatError

ESCAPE = 0x80

#: Steps are at least 2**-62 and below 2**57: the product with any root, of 2**-63 to 2**63.75, is a normal number.
_SMALLEST_STEP, _STEPS_END = 2.0**-62, 2.0**57


@dataclass(frozen=True, eq=False)
class Ratio8:
    """The codec of one tensor: a grid and a step, or a family of grids and a step for each of its runs."""

    v_grid: LogGrid | GridFamily  #: logarithmic; origins and pitches even, so that roots lie on the table
    steps: Tensor  #: float32, (1,) or (groups,), values of bfloat16: what the first moment's code counts

    name: ClassVar[str] = "ratio8"
    summary: ClassVar[str] = "8 bits a moment, the first as a multiple of the second's root: fewer bits"
    code_type: ClassVar[torch.dtype] = torch.uint8
    granularities: ClassVar[bool] = True
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
        inside = (self.steps >= _SMALLEST_STEP) & (self.steps < _STEPS_END)  # false of NaN
        short = self.steps.bfloat16().float() == self.steps
        if self.steps.shape != (wanted,) or not bool((inside & short).all()):
            raise FormatError(f"steps are not {wanted} bfloat16 values from 2**-62 to 2**57")

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
        unit = self._step(start, len(m)).double() * self._root(v_codes, start).double()
        multiple = (m.double() / torch.where(v_codes > 0, unit, 1.0)).round().clamp(-LARGEST_MULTIPLE, LARGEST_MULTIPLE)
        m_codes = torch.where(v_codes > 0, multiple, 0.0).to(torch.int8).view(torch.uint8)
        return Codes(m_codes, v_codes.to(torch.uint8))

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """See `Codec`; the first moment of an escape decodes to zero."""
        index = v_codes.long()
        multiple = m_codes.contiguous().view(torch.int8).masked_fill(m_codes == ESCAPE, 0).float()
        m = multiple * self._step(start, len(m_codes)) * self._root(index, start)
        v = torch.where(index > 0, self.v_grid.level((index - 1).clamp(min=0), start), 0.0)
        return m, v

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """T1, T2 and what second moments decode to, of a tensor with one grid: float32, (256,), indexed by the byte."""
        every = torch.arange(256).to(torch.uint8)
        multiple = every.view(torch.int8).masked_fill(every == ESCAPE, 0).float()
        return multiple * self.steps, self._root(every.long(), 0), self.decode(torch.zeros_like(every), every)[1]

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

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`: of one grid, its origin and pitch, and the sixteen bits of the step."""
        if isinstance(self.v_grid, GridFamily):
            return {"size": self.v_grid.size}
        return {"grid": [self.v_grid.origin, self.v_grid.pitch], "step": int(_step_bits(self.steps)) & 0xFFFF}

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`: of a family, origins and pitches in coarse units, and the bits of the steps."""
        if not isinstance(self.v_grid, GridFamily):
            return {}
        return {
            "v_origins": packed_units(self.v_grid.origins, LogGrid.origin_unit),
            "v_pitches": packed_units(self.v_grid.pitches, LogGrid.pitch_unit),
            "m_steps": _step_bits(self.steps),
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        if "size" in parameters:
            origins = unpacked_units(tensors["v_origins"], LogGrid.origin_unit, signed=True)
            pitches = unpacked_units(tensors["v_pitches"], LogGrid.pitch_unit, signed=False)
            steps = unpacked_units(tensors["m_steps"], 1, signed=False)
            grid: LogGrid | GridFamily = GridFamily(LogGrid, origins, pitches, V_LEVELS, int(parameters["size"]))
        else:
            origin, pitch = parameters["grid"]
            grid, steps = LogGrid.of_units(origin, pitch, V_LEVELS), torch.tensor([parameters["step"]])
            if steps.dtype is not torch.int64 or not 0 <= int(steps) < 1 << 16:
                raise FormatError(f"step is {parameters['step']!r}, expected the sixteen bits of a bfloat16")
        return cls(grid, (steps << 16).to(torch.int32).view(torch.float32))

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


def _step_bits(steps: Tensor) -> Tensor:
    """The upper half of each, int16."""
    return (steps.view(torch.int32) >> 16).to(torch.int16)
