"""entropy: steps as wide as the tolerance allows, and codes whose leading parts a file holds entropy-coded.

    second moment   0 is exact zero, k > 0 is the level of number `base + unit*(row + column) + k - center`
    first moment    0 is the escape, k > 0 the multiple `k - center` of a step times the second moment's root
    levels          `2**(-126 + number*pitch/65536)`, correctly rounded, as in `log8`; one row of them for all tensors
    center          `128 << low`, for each moment its own `low`, 0 to 8

A code's `low` bits are nearly uniform, and are stored as they are; the eight bits above them are not, and cost what
they tell: see `checkpoint.planes`.  A row and a column of a matrix say much of a second moment's size, so that the code
counts from what they say, and its leading part tells little; where that does not pay, there are none.

Claimed: `decode` and `encode` are `ratio8`'s: the level nearest in the logarithm, ties to the larger, clamped to the
codes' ends; zero, and nothing else, to zero; the nearest multiple of `step * root`, ties to even, clamped, 0 beside a
second moment of zero; see `multiples`.  No product is subnormal or overflows, and no encoder makes the escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.entropy_choice import (
    HIGHEST,
    LARGEST_PITCH,
    LOWEST,
    MOST_LOW_BITS,
    SMALLEST_PITCH,
    Choice,
    center,
    choose,
)
from guarded_moments.reference.codecs.grids import LogGrid
from guarded_moments.reference.codecs.multiples import (
    bits_of_steps,
    first_moment,
    nearest_multiple,
    require_steps,
    step_stated,
)
from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard
from guarded_moments.reference.codecs.tables import level_at
from guarded_moments.reference.errors import FormatError

#: Steps are below this: the product of 2**15 of them with the largest root, 2**63.75, does not overflow.
_STEPS_END = 2.0**49
_LARGEST_NUMBER, _LARGEST_UNIT = 1 << 31, 1 << 16
_WORD = 0xFFFF


@dataclass(frozen=True, eq=False)
class Entropy:
    """The codec of one tensor."""

    choice: Choice

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "steps as wide as the tolerance allows, entropy-coded: fewest bits, slower"
    code_type: ClassVar[torch.dtype] = torch.uint16
    granularities: ClassVar[bool] = False
    reusable: ClassVar[bool] = False
    search_widens: ClassVar[float] = 1.15  #: where nearly all have the same steps, less escapes than at 1.3
    by_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Reject numbers that are out of range, and rows without columns."""
        c = self.choice
        whole = all(type(n) is int for n in (c.pitch, c.base, c.unit, *c.low_bits))
        if not whole or c.pitch % 2 or not SMALLEST_PITCH <= c.pitch <= LARGEST_PITCH:
            raise FormatError(f"pitch is {c.pitch!r}, expected an even number of units from {SMALLEST_PITCH}")
        if not abs(c.base) <= _LARGEST_NUMBER or not 1 <= c.unit <= _LARGEST_UNIT:
            raise FormatError(f"base {c.base} and unit {c.unit} are out of range")
        if len(c.low_bits) != len(Codes._fields) or not all(0 <= bits <= MOST_LOW_BITS for bits in c.low_bits):
            raise FormatError(f"low bits are {c.low_bits}, expected two numbers up to {MOST_LOW_BITS}")
        offsets = (c.rows, c.columns)
        if any(x.dtype is not torch.int8 or x.ndim != 1 for x in offsets) or bool(len(c.rows)) != bool(len(c.columns)):
            raise FormatError("rows and columns are not lists of int8, both or none")
        require_steps(c.step, 1, _STEPS_END)

    def __eq__(self, other: object) -> bool:
        """Whether both decode alike and are stored alike."""
        if not isinstance(other, Entropy):
            return NotImplemented
        same = self.parameters() == other.parameters()
        one, another = self.parameter_tensors(), other.parameter_tensors()
        return same and one.keys() == another.keys() and all(torch.equal(one[name], another[name]) for name in one)

    __hash__ = None  # type: ignore[assignment]  # data, not a key

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:
        """Choose all of it from the data; `size` is the length of a row, None where there are no rows."""
        return cls(choose(m, v, guard, size))

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:
        """See `Codec`."""
        c = self.choice
        middles = [center(bits) for bits in c.low_bits]
        pitch, levels = torch.tensor(c.pitch), (HIGHEST - LOWEST) // c.pitch + 1
        number = LogGrid.nearest_of(v, torch.tensor(LOWEST), pitch, levels)
        v_codes = (number - self._predicted(start, len(v)) + middles[1]).clamp(1, 2 * middles[1] - 1)
        v_codes = torch.where(v > 0, v_codes, 0)
        root = torch.where(v > 0, level_at(self._exponent(v_codes, start) // 2), 0.0)
        multiple = nearest_multiple(m, c.step, root, middles[0] - 1)
        return Codes(_as_word(multiple + middles[0]), _as_word(v_codes))

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """See `Codec`; the first moment of an escape decodes to zero."""
        m_index, v_index = _of_word(m_codes), _of_word(v_codes)
        multiple = torch.where(m_index > 0, m_index - center(self.choice.low_bits[0]), 0)
        exponent = self._exponent(v_index, start)
        there = v_index > 0
        root, level = (torch.where(there, level_at(x), 0.0) for x in (exponent // 2, exponent))
        return first_moment(multiple, self.choice.step, root), level

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:  # noqa: ARG002 - the first code says it
        """See `Codec`."""
        return m_codes.contiguous().view(torch.int16) == 0

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """See `Codec`."""
        zero = torch.zeros((), dtype=self.code_type)
        return Codes(*(torch.where(where, zero, code) for code in codes))

    def require_numel(self, numel: int) -> None:
        """See `Codec`."""
        rows, columns = len(self.choice.rows), len(self.choice.columns)
        if rows and rows * columns != numel:
            raise FormatError(f"{rows} rows of {columns} do not fit {numel} coordinates")

    def low_bits(self) -> tuple[int, int]:
        """See `Codec`."""
        return self.choice.low_bits

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`."""
        c = self.choice
        plain = {"pitch": c.pitch, "base": c.base, "low_bits": list(c.low_bits), "unit": c.unit}
        return {**plain, "step": int(bits_of_steps(c.step)) & _WORD}

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`: what rows and columns say, int8, where they say anything."""
        return {"rows": self.choice.rows, "columns": self.choice.columns} if len(self.choice.rows) else {}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        none = torch.empty(0, dtype=torch.int8)
        m_low, v_low = parameters["low_bits"]
        offsets = (tensors["rows"], tensors["columns"]) if tensors else (none, none)
        pitch, base, unit = (parameters[name] for name in ("pitch", "base", "unit"))
        return cls(Choice(step_stated(parameters["step"]), pitch, base, unit, (m_low, v_low), *offsets))

    def _predicted(self, start: int, count: int) -> Tensor:
        """The level's number that the codes of a stretch count from: int64, (count,), or one for all."""
        c = self.choice
        if not len(c.rows):
            return torch.tensor(c.base)
        place = torch.arange(start, start + count)
        row, column = place // len(c.columns), place % len(c.columns)
        return c.base + c.unit * (c.rows[row].long() + c.columns[column].long())

    def _exponent(self, v_codes: Tensor, start: int) -> Tensor:
        """Of levels, in units; of the lowest for zero, whose level the caller replaces; int64."""
        number = self._predicted(start, len(v_codes)) + v_codes - center(self.choice.low_bits[1])
        return torch.where(v_codes > 0, (LOWEST + number * self.choice.pitch).clamp(LOWEST, HIGHEST), LOWEST)


def _as_word(codes: Tensor) -> Tensor:
    return codes.to(torch.int32).to(torch.uint16)


def _of_word(codes: Tensor) -> Tensor:
    return codes.contiguous().view(torch.int16).long() & _WORD  # signed: not all of torch knows uint16
