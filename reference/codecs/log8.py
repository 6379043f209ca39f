"""log8: each moment in eight bits on a logarithmic grid per tensor, with the escape inside the first moment's byte.

    first moment    bit 7 the sign, bits 0 to 6 the magnitude: 0 is exact zero, k > 0 is level k-1 of 127
    second moment   0 is exact zero, k > 0 is level k-1 of 255
    escape          first-moment byte 0x80, which would be minus zero; the second byte is then 0

Claimed: `decode` is a table look-up; `encode` picks the level nearest in the logarithm, ties to the larger, clamps to
the ends, and maps zero, and nothing else, to zero.  Encoding loses information that only the guard can allow: callers
must escape whatever it rejects, and everything outside its domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.reference.codecs.grids import Guard, LogGrid, choose_grids
from guarded_moments.reference.codecs.tables import levels, thresholds

NAME = "log8"
M_LEVELS = 127
V_LEVELS = 255
ESCAPE = 0x80
_SIGN = 0x80


@dataclass(frozen=True)
class Log8:
    """The codec of one tensor: a grid for each moment."""

    m_grid: LogGrid
    v_grid: LogGrid

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard) -> Log8:
        """Choose the grids from the data; see `choose_grids`."""
        return cls(*choose_grids(m, v, M_LEVELS, V_LEVELS, guard))

    def encode(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of both moments, unguarded.

        Args:
            m: finite float32, shape (n,).
            v: finite, non-negative float32, shape (n,).

        Returns:
            Two uint8 tensors of shape (n,).  No first-moment code is the escape.
        """
        magnitude = _encode_magnitude(m.abs(), self.m_grid)
        m_codes = torch.where((m < 0) & (magnitude > 0), magnitude | _SIGN, magnitude)
        return m_codes.to(torch.uint8), _encode_magnitude(v, self.v_grid).to(torch.uint8)

    def decode(self, m_codes: Tensor, v_codes: Tensor) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32; an escape decodes to zero and must be overwritten by the caller.

        Args:
            m_codes: uint8, shape (n,).
            v_codes: uint8, shape (n,).
        """
        m_table, v_table = self.tables()
        return m_table[m_codes.long()], v_table[v_codes.long()]

    def tables(self) -> tuple[Tensor, Tensor]:
        """Both decode tables, float32 of shape (256,), indexed by the byte."""
        zero = torch.zeros(1)
        m_levels, v_levels = levels(self.m_grid), levels(self.v_grid)
        return torch.cat([zero, m_levels, zero, -m_levels]), torch.cat([zero, v_levels])


def _encode_magnitude(magnitude: Tensor, grid: LogGrid) -> Tensor:
    """0 for zero, else one more than the index of the nearest level; int64."""
    index = torch.bucketize(magnitude, thresholds(grid), right=True)
    return torch.where(magnitude > 0, index + 1, 0)
