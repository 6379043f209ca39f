"""RAT: slips of codecs of ratios."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import torch
from tests.meta.seeding import caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import Codes, Moments, RatioGrid, ReferenceBackend
from guarded_moments.oracle.conformance.ratio import roots_and_levels


@caught_by("RAT-1")
class RootOfTheRoundedLevel(ReferenceBackend):
    """The root is taken of the decoded second moment, which was rounded already."""

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        _, v = super().decode_ratio(codes, grid)
        return Moments(codes.m.view(torch.int8).float() * grid.step * v.sqrt(), v)


@caught_by("RAT-1")
class RootTimesStepFirst(ReferenceBackend):
    """The step is multiplied into the table of roots, which rounds once more."""

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        _, v = super().decode_ratio(codes, grid)
        units = roots_and_levels(grid.v)[0] * torch.tensor(grid.step)
        return Moments(codes.m.view(torch.int8).float() * units[codes.v.long()], v)


@caught_by("RAT-1")
class MultipleReadAsUnsigned(ReferenceBackend):
    """Negative multiples become 128 and more."""

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        _, v = super().decode_ratio(codes, grid)
        return Moments(codes.m.float() * grid.step * roots_and_levels(grid.v)[0][codes.v.long()], v)


@caught_by("RAT-2")
class RatioToTheNativeRoot(ReferenceBackend):
    """The multiple nearest to `m / sqrt(v)`, where it is the decoded second moment's root that multiplies it."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        multiple = (m.double() / (grid.step * v.double().sqrt())).round().clamp(-127, 127)
        return Codes(multiple.to(torch.int8).view(torch.uint8), codes.v)


def _rounded_by(m: Tensor, codes: Codes, grid: RatioGrid, *, ties_up: bool, dtype: torch.dtype) -> Tensor:
    unit = roots_and_levels(grid.v)[0][codes.v.long()].to(dtype) * grid.step
    quotient = m.to(dtype) / torch.where(codes.v > 0, unit, torch.inf)
    multiple = (quotient + 0.5).floor() if ties_up else quotient.round()
    return multiple.clamp(-127, 127).to(torch.int8).view(torch.uint8)


@caught_by("RAT-2")
class TiesOfMultiplesUp(ReferenceBackend):
    """A half is added and the sum rounded down."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        return Codes(_rounded_by(m, codes, grid, ties_up=True, dtype=torch.float64), codes.v)


@caught_by("RAT-2")
class QuotientInBinary32(ReferenceBackend):
    """Unit and quotient are rounded to binary32 before the multiple is."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        return Codes(_rounded_by(m, codes, grid, ties_up=False, dtype=torch.float32), codes.v)


@caught_by("RAT-3")
class ClampedToTheBytesEnds(ReferenceBackend):
    """The most negative multiple is -128, which is the escape."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        lowest = (codes.m.view(torch.int8) == -127) & (m < -1e30)
        return Codes(torch.where(lowest, 0x80, codes.m).to(torch.uint8), codes.v)


@caught_by("RAT-3")
class RatioToZeroIsTheLargest(ReferenceBackend):
    """Beside a second moment of zero the quotient is infinite, and clamped."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        beside = (v == 0) & (m > 0)
        return Codes(torch.where(beside, 127, codes.m).to(torch.uint8), codes.v)


@caught_by("RAT-4")
class MultiplesTruncated(ReferenceBackend):
    """Toward zero: what was decoded, rounded down a little, loses one."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes = super().encode_ratio(m, v, grid)
        unit = roots_and_levels(grid.v)[0][codes.v.long()].double() * grid.step
        multiple = (m.double() / torch.where(codes.v > 0, unit, torch.inf)).trunc().clamp(-127, 127)
        return Codes(multiple.to(torch.int8).view(torch.uint8), codes.v)


@caught_by("RAT-5")
class TailOfRatiosNotEncoded(ReferenceBackend):
    """The last `n % 16` elements keep what was in the buffer."""

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        codes, whole = super().encode_ratio(m, v, grid), len(m) - len(m) % 16
        return Codes(torch.cat([codes.m[:whole], torch.zeros_like(codes.m[whole:])]), codes.v)
