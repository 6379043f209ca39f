"""Eight bits for each moment, on a grid each, with the escape inside the first moment's byte.

    first moment    bit 7 the sign, bits 0 to 6 the magnitude: 0 is exact zero, k > 0 is level k-1 of 127
    second moment   0 is exact zero, k > 0 is level k-1 of 255
    escape          first-moment byte 0x80, which would be minus zero; the second byte is then 0

What `log8`, `lin8` and `joint` share; they differ in the grid's scale and in what they try where the guard rejects.

Claimed: `encode` picks the nearest level of the grid and maps zero, and nothing else, to zero; no first-moment code is
the escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.grids import Grid, GridFamily, SpacedGrid
from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard, choose_grids
from guarded_moments.reference.errors import FormatError

M_LEVELS = 127
V_LEVELS = 255
ESCAPE = 0x80
_SIGN, _MAGNITUDE = 0x80, 0x7F


@dataclass(frozen=True)
class EightBit:
    """The codec of one tensor: a grid, or a family of them, for each moment."""

    m_grid: Grid
    v_grid: Grid

    kind: ClassVar[type[SpacedGrid]]
    code_type: ClassVar[torch.dtype] = torch.uint8
    granularities: ClassVar[bool] = True
    search_widens: ClassVar[float] = 1.3
    by_rows: ClassVar[bool] = False
    reusable: ClassVar[bool] = True

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:
        """Choose the grids from the data; see `choose_grids`."""
        return cls(*choose_grids(cls.kind, m, v, M_LEVELS, V_LEVELS, guard, size))

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:
        """See `Codec`."""
        magnitude = encode_magnitude(m.abs(), self.m_grid, start)
        m_codes = torch.where((m < 0) & (magnitude > 0), magnitude | _SIGN, magnitude)
        return Codes(m_codes.to(torch.uint8), encode_magnitude(v, self.v_grid, start).to(torch.uint8))

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """See `Codec`; an escape decodes to zero."""
        if isinstance(self.m_grid, GridFamily) or isinstance(self.v_grid, GridFamily):
            m = _decode_magnitude(m_codes & _MAGNITUDE, self.m_grid, start)
            return torch.where(m_codes > _SIGN, -m, m), _decode_magnitude(v_codes, self.v_grid, start)
        m_table, v_table = self.tables()
        return m_table[m_codes.long()], v_table[v_codes.long()]

    def tables(self) -> tuple[Tensor, Tensor]:
        """Both decode tables of a tensor with one grid a moment, float32 of shape (256,), indexed by the byte."""
        zero = torch.zeros(1)
        m_levels, v_levels = (grid.level(torch.arange(grid.levels)) for grid in (self.m_grid, self.v_grid))
        return torch.cat([zero, m_levels, zero, -m_levels]), torch.cat([zero, v_levels])

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:  # noqa: ARG002 - the first byte says it
        """See `Codec`."""
        return m_codes == ESCAPE

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """See `Codec`."""
        return Codes(codes.m.masked_fill(where, ESCAPE), codes.v.masked_fill(where, 0))

    def require_numel(self, numel: int) -> None:
        """See `Codec`."""
        for grid in (self.m_grid, self.v_grid):
            if isinstance(grid, GridFamily):
                grid.require_numel(numel)

    def low_bits(self) -> tuple[int, int] | None:
        """See `Codec`: codes are bytes."""
        return None

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`."""
        if isinstance(self.m_grid, GridFamily):
            return {"size": self.m_grid.size}
        return {"grids": [[grid.origin, grid.pitch] for grid in (self.m_grid, self.v_grid)]}  # type: ignore[attr-defined]  # no family: spaced

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`: of families, origins and pitches in the kind's coarse units."""
        if not isinstance(self.m_grid, GridFamily) or not isinstance(self.v_grid, GridFamily):
            return {}
        families = {"m": self.m_grid, "v": self.v_grid}
        origins = {
            f"{name}_origins": packed_units(family.origins, self.kind.origin_unit) for name, family in families.items()
        }
        pitches = {
            f"{name}_pitches": packed_units(family.pitches, self.kind.pitch_unit) for name, family in families.items()
        }
        return {**origins, **pitches}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        if "size" in parameters:
            size = int(parameters["size"])
            m_grid, v_grid = (
                GridFamily(
                    cls.kind,
                    unpacked_units(tensors[f"{name}_origins"], cls.kind.origin_unit, signed=True),
                    unpacked_units(tensors[f"{name}_pitches"], cls.kind.pitch_unit, signed=False),
                    levels,
                    size,
                )
                for name, levels in (("m", M_LEVELS), ("v", V_LEVELS))
            )
            return cls(m_grid, v_grid)
        (m_origin, m_pitch), (v_origin, v_pitch) = parameters["grids"]
        return cls(
            cls.kind.of_units(m_origin, m_pitch, M_LEVELS),
            cls.kind.of_units(v_origin, v_pitch, V_LEVELS),
        )


def encode_magnitude(magnitude: Tensor, grid: Grid, start: int) -> Tensor:
    """0 for zero, else one more than the index of the nearest level; int64."""
    return torch.where(magnitude > 0, grid.nearest(magnitude, start) + 1, 0)


def _decode_magnitude(codes: Tensor, grid: Grid, start: int) -> Tensor:
    index = codes.long() - 1
    return torch.where(index >= 0, grid.level(index.clamp(min=0), start), 0.0)


def packed_units(values: Tensor, unit: int) -> Tensor:
    """Multiples of a unit as the 16 bits of each."""
    return (values // unit).to(torch.int32).to(torch.int16)


def unpacked_units(packed: Tensor, unit: int, *, signed: bool) -> Tensor:
    """What `packed_units` was given.

    Raises:
        FormatError: it is not of 16 bits.
    """
    if packed.dtype is not torch.int16:
        raise FormatError(f"grid parameters are {packed.dtype}, expected int16")
    values = packed.long()
    return (values if signed else values & 0xFFFF) * unit
