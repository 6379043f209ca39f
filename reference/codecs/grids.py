"""Grids: the magnitudes that codes stand for, evenly spaced on a scale, and which code is nearest to a number.

Two scales: the logarithm (`LogGrid`), and the float's own bits (`FloatGrid`), where 2**23 units are an octave and the
logarithm is replaced by straight lines between powers of two.  A grid is an origin and a pitch, both integers in units
of its scale, so that parameters are exact in any notation; and the formulas, each written once, work on arrays of
origins and pitches, so that thousands of grids (`GridFamily`) cost no more than one.

Claimed: `nearest` gives the level nearest on the scale, ties to the larger, clamped to the ends; `level` is exact, or
rounded correctly as `tables` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, final

import torch
from torch import Tensor

from guarded_moments.reference.codecs.tables import LEVEL_BITS, level_at, levels, threshold_at, thresholds
from guarded_moments.reference.errors import FormatError
from guarded_moments.reference.floats import LARGEST_FINITE_BITS

_FRACTION_BITS = 23
_SMALLEST_NORMAL_BITS = 1 << _FRACTION_BITS


class Grid(Protocol):
    """What a moment's codes need; `start` is the place in the tensor of the first of the coordinates given."""

    @property
    def levels(self) -> int:
        """How many magnitudes there are."""
        ...

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:
        """Index of the nearest level, int64, shape (n,); `magnitude` is float32, finite, not negative."""
        ...

    def level(self, index: Tensor, start: int = 0) -> Tensor:
        """The magnitudes, float32, shape (n,), of level indices, int64."""
        ...


class SpacedGrid(Grid, Protocol):
    """One grid, given by origin and pitch in units of its scale."""

    units: ClassVar[int]  #: to an octave
    origin_unit: ClassVar[int]  #: origins that are chosen are multiples of this, and fit 16 bits with their sign
    pitch_unit: ClassVar[int]  #: pitches likewise, and fit 16 bits

    @property
    def origin(self) -> int:
        """Where level 0 is."""
        ...

    @property
    def pitch(self) -> int:
        """From one level to the next."""
        ...

    @classmethod
    def of_units(cls, origin: int, pitch: int, levels: int) -> Self:
        """The grid with these parameters."""
        ...

    @classmethod
    def spanning(cls, low: float, high: float, levels: int) -> Self:
        """The grid that reaches from about `2**low` to about `2**high`, moved inside the format where needed."""
        ...

    @staticmethod
    def position(magnitude: Tensor) -> Tensor:
        """Where magnitudes are on the scale, in octaves, float64; for choosing grids, not for encoding."""
        ...

    @staticmethod
    def magnitude(position: Tensor) -> Tensor:
        """What is at positions, in units of the scale; to a few units in the last place, for choosing grids too."""
        ...

    @staticmethod
    def fitted(low: Tensor, high: Tensor, levels: int) -> tuple[Tensor, Tensor]:
        """Origins and pitches, int64, of grids that reach about from `low` to `high`, positions in octaves."""
        ...

    @staticmethod
    def nearest_of(magnitude: Tensor, origin: Tensor, pitch: Tensor, levels: int) -> Tensor:
        """As `Grid.nearest`, with a grid for each coordinate."""
        ...

    @staticmethod
    def level_of(index: Tensor, origin: Tensor, pitch: Tensor) -> Tensor:
        """As `Grid.level`, with a grid for each coordinate."""
        ...


@final
@dataclass(frozen=True)
class LogGrid:
    """The magnitudes `2**(low + i*step)` for `i` in `range(levels)`; exponents in octaves."""

    low: float
    step: float
    levels: int

    #: A file may hold any multiple of 2**-16 octaves.
    units: ClassVar[int] = 1 << LEVEL_BITS
    #: What is chosen is coarser, to be short: a 128th of an octave, and a pitch of at most four octaves.
    origin_unit: ClassVar[int] = 1 << (LEVEL_BITS - 7)
    pitch_unit: ClassVar[int] = 4

    #: Levels are normal binary32 values; a narrower step than this could make two of them equal.
    _LOWEST: ClassVar[float] = -126.0
    _HIGHEST: ClassVar[float] = 127.5
    _SMALLEST_PITCH: ClassVar[int] = 4

    def __post_init__(self) -> None:
        """Reject a grid whose levels would not be distinct normal binary32 values."""
        smallest = self._SMALLEST_PITCH / self.units
        in_range = (
            self.low >= self._LOWEST and self.step >= smallest and self.exponent(self.levels - 1) <= self._HIGHEST
        )
        if not (in_range and self.low * self.units == self.origin and self.step * self.units == self.pitch):
            msg = f"grid {self} does not give distinct normal binary32 levels"
            raise FormatError(msg)

    def exponent(self, index: float) -> float:
        """The base-2 logarithm of level `index`; exact, for half-integer `index` too."""
        return self.low + index * self.step

    @property
    def origin(self) -> int:
        """See `SpacedGrid`."""
        return math.floor(self.low * self.units)

    @property
    def pitch(self) -> int:
        """See `SpacedGrid`."""
        return math.floor(self.step * self.units)

    @classmethod
    def of_units(cls, origin: int, pitch: int, levels: int) -> LogGrid:
        """See `SpacedGrid`."""
        return cls(origin / cls.units, pitch / cls.units, levels)

    @classmethod
    def spanning(cls, low: float, high: float, levels: int) -> LogGrid:
        """The grid that reaches from about `2**low` to about `2**high`, moved inside the format where needed."""
        lowest, highest = (torch.tensor([end], dtype=torch.float64) for end in (low, high))
        origin, pitch = cls.fitted(lowest, highest, levels)
        return cls.of_units(int(origin), int(pitch), levels)

    @staticmethod
    def position(magnitude: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return magnitude.double().log2()

    @classmethod
    def magnitude(cls, position: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return (position / cls.units).float().exp2()

    @classmethod
    def fitted(cls, low: Tensor, high: Tensor, levels: int) -> tuple[Tensor, Tensor]:
        """See `SpacedGrid`."""
        lowest, highest = int(cls._LOWEST * cls.units), int(cls._HIGHEST * cls.units)
        origin = _floored(low * cls.units, cls.origin_unit).clamp(lowest, highest - cls.units)
        pitch = _floored(((high * cls.units).clamp(max=highest) - origin) / (levels - 1), cls.pitch_unit)
        # Down from the top where even the narrowest pitch would leave the format; one octave is room enough.
        return origin, pitch.clamp(min=cls._SMALLEST_PITCH)

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - one grid for all places
        """See `Grid`."""
        return torch.bucketize(magnitude.contiguous(), thresholds(self), right=True)

    def level(self, index: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as above
        """See `Grid`."""
        return levels(self)[index]

    @classmethod
    def nearest_of(cls, magnitude: Tensor, origin: Tensor, pitch: Tensor, levels: int) -> Tensor:
        """See `SpacedGrid`."""
        smallest = torch.tensor(_SMALLEST_NORMAL_BITS, dtype=torch.int32).view(torch.float32)
        about = (cls.position(torch.maximum(magnitude, smallest)) * cls.units - origin) / pitch + 0.5
        index = about.clamp(0, levels - 1).long()
        # The logarithm is good to far less than a level: the thresholds on either side settle it.
        index -= ((index > 0) & (magnitude < _threshold(index - 1, origin, pitch))).long()
        return index + ((index < levels - 1) & (magnitude >= _threshold(index, origin, pitch))).long()

    @staticmethod
    def level_of(index: Tensor, origin: Tensor, pitch: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return level_at(origin + index * pitch)


def _threshold(index: Tensor, origin: Tensor, pitch: Tensor) -> Tensor:
    return threshold_at(2 * origin + (2 * index + 1) * pitch)


def _floored(value: Tensor, unit: int) -> Tensor:
    return (value / unit).floor().long() * unit


@final
@dataclass(frozen=True)
class FloatGrid:
    """The magnitudes whose bits are `base + i*step`: a minifloat of any base and step, decoded without a table."""

    base: int  #: bits of the smallest level
    step: int  #: in units of a binary32's last place
    levels: int

    units: ClassVar[int] = 1 << _FRACTION_BITS
    origin_unit: ClassVar[int] = 1 << 16  #: a 128th of an octave
    pitch_unit: ClassVar[int] = 1 << 10

    def __post_init__(self) -> None:
        """Reject a grid whose levels would not be distinct normal binary32 values."""
        whole = all(type(parameter) is int for parameter in (self.base, self.step))
        top = self.base + (self.levels - 1) * self.step
        if not (whole and self.base >= _SMALLEST_NORMAL_BITS and self.step >= 1 and top <= LARGEST_FINITE_BITS):
            msg = f"grid {self} does not give distinct normal binary32 levels"
            raise FormatError(msg)

    @property
    def origin(self) -> int:
        """See `SpacedGrid`."""
        return self.base

    @property
    def pitch(self) -> int:
        """See `SpacedGrid`."""
        return self.step

    @classmethod
    def of_units(cls, origin: int, pitch: int, levels: int) -> FloatGrid:
        """See `SpacedGrid`."""
        return cls(origin, pitch, levels)

    @classmethod
    def spanning(cls, low: float, high: float, levels: int) -> FloatGrid:
        """The grid that reaches from about `2**low` to about `2**high`, moved inside the format where needed."""
        lowest, highest = (
            cls.position(torch.exp2(torch.tensor([end], dtype=torch.float64)).float()) for end in (low, high)
        )
        origin, pitch = cls.fitted(lowest, highest, levels)
        return cls(int(origin), int(pitch), levels)

    @classmethod
    def position(cls, magnitude: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return magnitude.view(torch.int32).double() / cls.units

    @staticmethod
    def magnitude(position: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return position.to(torch.int32).view(torch.float32)

    @classmethod
    def fitted(cls, low: Tensor, high: Tensor, levels: int) -> tuple[Tensor, Tensor]:
        """See `SpacedGrid`."""
        origin = _floored(low * cls.units, cls.origin_unit)
        origin = origin.clamp(_SMALLEST_NORMAL_BITS, LARGEST_FINITE_BITS + 1 - cls.units)
        room = (high * cls.units).clamp(max=float(LARGEST_FINITE_BITS)) - origin
        return origin, _floored(room / (levels - 1), cls.pitch_unit).clamp(min=cls.pitch_unit)

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - one grid for all places
        """See `Grid`."""
        return self.nearest_of(magnitude, torch.tensor(self.base), torch.tensor(self.step), self.levels)

    def level(self, index: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as above
        """See `Grid`."""
        return self.level_of(index, torch.tensor(self.base), torch.tensor(self.step))

    @staticmethod
    def nearest_of(magnitude: Tensor, origin: Tensor, pitch: Tensor, levels: int) -> Tensor:
        """See `SpacedGrid`."""
        # Exact: below 2**8 levels the quotient keeps at least 1/(2*pitch) from the next integer, and binary64 rounds
        # it by less.
        distance = (magnitude.view(torch.int32) - origin).double() + pitch / 2
        return (distance / pitch).floor().clamp(0, levels - 1).long()

    @staticmethod
    def level_of(index: Tensor, origin: Tensor, pitch: Tensor) -> Tensor:
        """See `SpacedGrid`."""
        return (origin + index * pitch).to(torch.int32).view(torch.float32)


@final
@dataclass(frozen=True, eq=False)
class GridFamily:
    """A grid for each run of `size` coordinates of a tensor, in memory order; the last run may be shorter."""

    kind: type[SpacedGrid]
    origins: Tensor  #: int64, (groups,)
    pitches: Tensor  #: int64, (groups,)
    levels: int
    size: int

    def __post_init__(self) -> None:
        """Reject a family of which a member is no grid."""
        if self.size < 1 or self.origins.shape != self.pitches.shape or not len(self.origins):
            raise FormatError(f"grids of {self.origins.shape} origins, {self.pitches.shape} pitches, {self.size} each")
        top = self.origins + (self.levels - 1) * self.pitches
        for extreme in (self.origins.argmin(), self.pitches.argmin(), top.argmax()):
            self.kind.of_units(int(self.origins[extreme]), int(self.pitches[extreme]), self.levels)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same grids of the same coordinates."""
        if not isinstance(other, GridFamily):
            return NotImplemented
        same = (self.kind, self.levels, self.size) == (other.kind, other.levels, other.size)
        return same and torch.equal(self.origins, other.origins) and torch.equal(self.pitches, other.pitches)

    __hash__ = None  # type: ignore[assignment]  # data, not a key

    def require_numel(self, numel: int) -> None:
        """Refuse a number of coordinates that has more or fewer runs.

        Raises:
            FormatError: it has.
        """
        if len(self.origins) != -(-numel // self.size):
            raise FormatError(f"{len(self.origins)} grids of {self.size} coordinates do not fit {numel} coordinates")

    def member(self, group: int) -> SpacedGrid:
        """The grid of one run."""
        return self.kind.of_units(int(self.origins[group]), int(self.pitches[group]), self.levels)

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:
        """See `Grid`."""
        group = self.groups(start, len(magnitude))
        return self.kind.nearest_of(magnitude, self.origins[group], self.pitches[group], self.levels)

    def level(self, index: Tensor, start: int = 0) -> Tensor:
        """See `Grid`."""
        group = self.groups(start, len(index))
        return self.kind.level_of(index, self.origins[group], self.pitches[group])

    def groups(self, start: int, count: int) -> Tensor:
        """The run of each coordinate of a stretch, int64."""
        return torch.arange(start, start + count) // self.size
