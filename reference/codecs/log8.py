"""log8: each moment in eight bits on a logarithmic grid, the scheme's own codec.

Claimed: `decode` is a look-up in correctly rounded powers of two; `encode` picks the level nearest in the logarithm,
ties to the larger, clamps to the ends, and maps zero, and nothing else, to zero.  Layout and escape: `eight_bit`.
"""

from __future__ import annotations

from typing import ClassVar

from guarded_moments.reference.codecs.eight_bit import ESCAPE, M_LEVELS, V_LEVELS, EightBit
from guarded_moments.reference.codecs.grids import LogGrid, SpacedGrid

__all__ = ["ESCAPE", "M_LEVELS", "V_LEVELS", "Log8"]


class Log8(EightBit):
    """The codec of one tensor: a logarithmic grid, or a family of them, for each moment."""

    name: ClassVar[str] = "log8"
    summary: ClassVar[str] = "8 bits a moment on a logarithmic grid"
    kind: ClassVar[type[SpacedGrid]] = LogGrid
