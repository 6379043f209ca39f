"""DEC: slips of decoders."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import torch
from tests.meta.seeding import caught_by

from guarded_moments.oracle.conformance import Codes, Grids, Moments, ReferenceBackend
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.codecs.tables import levels

INFINITY = torch.tensor(torch.inf)


@caught_by("DEC-1")
class OneLevelOffByAnUlp(ReferenceBackend):
    """One entry of the decode table was rounded the other way."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(m, torch.where(codes.v == 77, torch.nextafter(v, INFINITY), v))


@caught_by("DEC-2")
class ZeroDecodesToTheFirstLevel(ReferenceBackend):
    """The table has no entry for zero, as that of blockwise 8-bit optimizers."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        return super().decode(Codes(codes.m, codes.v.clamp(min=1)), grids)


@caught_by("DEC-2")
class NegativeZeroCode(ReferenceBackend):
    """The escape decodes to minus zero, its sign bit taken for a sign."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(torch.where(codes.m == ESCAPE, -m, m), v)


@caught_by("DEC-3")
class LevelsSwapped(ReferenceBackend):
    """Two neighbouring entries of the table changed places."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        swapped = torch.where(codes.m == 0x85, 0x86, torch.where(codes.m == 0x86, 0x85, codes.m))
        return super().decode(Codes(swapped.to(torch.uint8), codes.v), grids)


@caught_by("DEC-1")
class SignLost(ReferenceBackend):
    """Negative codes decode to positive levels."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(m.abs(), v)


@caught_by("DEC-1")
class TableByBinary32Exponential(ReferenceBackend):
    """Levels by the device's own exp2, not from a correctly rounded table."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        level = torch.tensor(grids.v.low) + (codes.v.float() - 1) * torch.tensor(grids.v.step)
        return Moments(m, torch.where(codes.v > 0, torch.exp2(level), v))


@caught_by("DEC-1")
class OffByOneCode(ReferenceBackend):
    """Code `k` read as level `k`, where code 0 is zero and level 0 has code 1."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        return super().decode(Codes(codes.m, torch.where(codes.v > 0, codes.v.int() + 1, 0).clamp(max=255)), grids)


@caught_by("DEC-1")
class StepByAccumulation(ReferenceBackend):
    """Levels made by multiplying the one before in binary32: the error grows along the table."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, _ = super().decode(codes, grids)
        ratio = torch.exp2(torch.tensor(grids.v.step))
        made = levels(grids.v)[0] * torch.cumprod(torch.full((255,), float(ratio)), 0) / ratio
        table = torch.cat([torch.zeros(1), made])
        return Moments(m, table[codes.v.long()])


@caught_by("DEC-4")
class TailOfVectorsNotDecoded(ReferenceBackend):
    """The last `n % 8` elements keep what was in the buffer."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        whole = len(m) - len(m) % 8
        return Moments(torch.cat([m[:whole], torch.zeros_like(m[whole:])]), v)


@caught_by("DEC-4")
class StrideIgnored(ReferenceBackend):
    """A view is read as if it were contiguous: from its first element on, one after the other."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        flat = [torch.as_strided(code, (len(code),), (1,)) for code in codes]
        return super().decode(Codes(*flat), grids)
