"""lin8: each moment in eight bits on a grid that is linear in the float's own bits.

A level is `base + code*step` read as a binary32: encoding is a subtraction and a division, decoding an integer product
and sum.  No logarithm and no table; between powers of two the levels are evenly spaced, as a minifloat's are.

Claimed: `decode` is exact integer arithmetic; `encode` picks the level nearest in the order of binary32 values, ties to
the larger, clamps to the ends, and maps zero, and nothing else, to zero.  Layout and escape: `eight_bit`.
"""

from __future__ import annotations

from typing import ClassVar

from guarded_moments.reference.codecs.eight_bit import EightBit
from guarded_moments.reference.codecs.grids import FloatGrid, SpacedGrid


class Lin8(EightBit):
    """The codec of one tensor: a grid on the float's bits, or a family of them, for each moment."""

    name: ClassVar[str] = "lin8"
    summary: ClassVar[str] = "8 bits a moment on a grid linear in the float's bits: fastest"
    kind: ClassVar[type[SpacedGrid]] = FloatGrid
