"""ENC: slips of encoders."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import torch
from tests.meta.seeding import caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import Codes, Grids, Moments, ReferenceBackend
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.codecs.tables import levels, thresholds


@caught_by("ENC-1")
class EncodesDown(ReferenceBackend):
    """The level below instead of the nearest."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        below = torch.bucketize(v, levels(grids.v), right=True)
        below = torch.where(v > 0, below.clamp(min=1), 0)
        return Codes(super().encode(m, v, grids).m, below.to(torch.uint8))


@caught_by("ENC-1")
class NearestInValue(ReferenceBackend):
    """The level nearest in the number instead of the logarithm."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        table = levels(grids.v).double()
        nearest = torch.bucketize(v.double(), (table[1:] + table[:-1]) / 2, right=True) + 1
        return Codes(super().encode(m, v, grids).m, torch.where(v > 0, nearest, 0).to(torch.uint8))


@caught_by("ENC-1")
class TiesDown(ReferenceBackend):
    """A number on the threshold itself goes down."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        index = torch.bucketize(v, thresholds(grids.v), right=False)
        return Codes(super().encode(m, v, grids).m, torch.where(v > 0, index + 1, 0).to(torch.uint8))


@caught_by("ENC-2")
class TinyBecomesZero(ReferenceBackend):
    """What is far below the grid is stored as zero."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(codes.m, torch.where(v < levels(grids.v)[0] / 2, 0, codes.v).to(torch.uint8))


@caught_by("ENC-2")
class TinyNegativeIsTheEscape(ReferenceBackend):
    """A small negative moment gets the code that would be minus zero."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        tiny = (m < 0) & (m > -levels(grids.m)[0] / 2)
        return Codes(torch.where(tiny, ESCAPE, codes.m).to(torch.uint8), codes.v)


@caught_by("ENC-3")
class FirstLevelSkipped(ReferenceBackend):
    """The lowest level is never used."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(codes.m, torch.where(codes.v == 1, 2, codes.v).to(torch.uint8))


@caught_by("ENC-4")
class HugeWrapsAround(ReferenceBackend):
    """The index of a number above the grid overflows its byte."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        beyond = v > 2 * levels(grids.v)[-1]
        return Codes(codes.m, torch.where(beyond, 1, codes.v).to(torch.uint8))


@caught_by("ENC-1")
class MagnitudeByLogarithmInBinary32(ReferenceBackend):
    """The index from a binary32 logarithm, rounded: near a threshold it goes either way."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        index = torch.round((torch.log2(v) - grids.v.low) / grids.v.step).clamp(0, grids.v.levels - 1)
        return Codes(super().encode(m, v, grids).m, torch.where(v > 0, index + 1, 0).to(torch.uint8))


@caught_by("ENC-2")
class MinusZeroIsTheEscape(ReferenceBackend):
    """The sign bit is kept with code 0: minus zero reads as the escape."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(torch.where((m == 0) & torch.signbit(m), ESCAPE, codes.m).to(torch.uint8), codes.v)


@caught_by("ENC-4")
class SubnormalsFlushed(ReferenceBackend):
    """A device that takes subnormals for zero finds none among them to encode."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(codes.m, torch.where(v < 2.0**-126, 0, codes.v).to(torch.uint8))


@caught_by("ENC-5")
class LastOfBlockIsTheNextOnes(ReferenceBackend):
    """The scale of a block read one element late: every 256th number has its neighbour's code."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        next_blocks = codes.v[256::256].clone()
        codes.v[255:-1:256] = next_blocks
        return codes


@caught_by("ENC-5")
class TailAsBody(ReferenceBackend):
    """A short last vector is loaded whole, from eight before the end."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        short = len(v) % 8
        if len(v) > 8 and short:
            codes.m[-short:] = codes.m[-8:][:short].clone()
        return codes


@caught_by("ENC-6")
class LevelsPassedOver(ReferenceBackend):
    """Every fourth level is never chosen, as where an index is rounded twice."""

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        recovered = super().round_trip(m, v)
        table = recovered.v.unique()
        index = torch.searchsorted(table, recovered.v)
        skipped = (index % 4 == 3) & (torch.arange(len(v)) % 5 > 0) & (index > 0)
        return Moments(recovered.m, torch.where(skipped, table[index - 1], recovered.v))
