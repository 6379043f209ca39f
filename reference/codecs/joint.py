"""joint: log8 whose rejected coordinates try the neighbouring pairs of codes before they escape.

Each moment alone is rounded to its nearest level; together, another pair may be within the tolerance where the nearest
is not.  The eight pairs one level away in either moment or both are tried, nearest first.  Files decode as log8's do.

Claimed: a neighbour is a level of the grid of the same sign; zero has no neighbours and is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS
from guarded_moments.reference.codecs.log8 import Log8
from guarded_moments.reference.codecs.protocol import Codes

_SIGN, _MAGNITUDE = 0x80, 0x7F
#: One moment moved, then both.
_MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))


class Joint(Log8):
    """The codec of one tensor; see the module."""

    name: ClassVar[str] = "joint"
    summary: ClassVar[str] = "log8 that tries neighbouring pairs of codes before it escapes"

    def alternatives(self, codes: Codes) -> Iterator[Codes]:
        """See `Codec`: eight; a move that leaves the grid stays where it is."""
        sign, magnitude, second = codes.m & _SIGN, (codes.m & _MAGNITUDE).int(), codes.v.int()
        for m_move, v_move in _MOVES:
            m = torch.where(magnitude > 0, (magnitude + m_move).clamp(1, M_LEVELS), 0)
            v = torch.where(second > 0, (second + v_move).clamp(1, V_LEVELS), 0)
            yield Codes(m.to(torch.uint8) | sign, v.to(torch.uint8))
