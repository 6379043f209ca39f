"""bf16: each moment rounded to bfloat16, the upper half of a binary32.

    escape    first-moment code 0x8000, minus zero; the second code is then 0

Claimed: `encode` rounds to nearest, ties to even; `decode` is exact.  A first moment that rounds to minus zero has the
code of the escape, and so is stored exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.protocol import Codes
from guarded_moments.reference.codecs.ranges import Guard
from guarded_moments.reference.errors import FormatError

ESCAPE = 0x8000
_DROPPED_BITS = 16
_BELOW_HALF = 0x7FFF  #: added before truncation; the last kept bit is added to it, for ties to even


@dataclass(frozen=True)
class BFloat16:
    """The codec of any tensor: there is nothing to choose."""

    name: ClassVar[str] = "bf16"
    summary: ClassVar[str] = "16 bits a moment, bfloat16: twice the space, few escapes at small tolerances"
    code_type: ClassVar[torch.dtype] = torch.uint16
    granularities: ClassVar[bool] = False
    search_widens: ClassVar[float] = 1.3
    by_rows: ClassVar[bool] = False
    reusable: ClassVar[bool] = True

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:  # noqa: ARG003 - nothing to fit
        """See `Codec`."""
        return cls()

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:  # noqa: ARG002 - the same everywhere
        """See `Codec`."""
        return Codes(_rounded(m), _rounded(v))

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - as above
        """See `Codec`; an escape decodes to minus zero and zero."""
        return _widened(m_codes), _widened(v_codes)

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:  # noqa: ARG002 - the first code says it
        """See `Codec`."""
        return m_codes.view(torch.int16) == ESCAPE - (1 << _DROPPED_BITS)  # signed: not all of torch knows uint16

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """See `Codec`."""
        reserved, zero = (torch.tensor(code, dtype=self.code_type) for code in (ESCAPE, 0))
        return Codes(torch.where(where, reserved, codes.m), torch.where(where, zero, codes.v))

    def require_numel(self, numel: int) -> None:
        """See `Codec`: any number will do."""

    def low_bits(self) -> tuple[int, int] | None:
        """See `Codec`: codes are bytes."""
        return None

    def alternatives(self, codes: Codes) -> Iterator[Codes]:  # noqa: ARG002 - there are none
        """See `Codec`: none."""
        return iter(())

    def parameters(self) -> Mapping[str, Any]:
        """See `Codec`: none."""
        return {}

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """See `Codec`: none."""
        return {}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """See `Codec`."""
        if parameters or tensors:
            raise FormatError(f"{cls.name} has no parameters, found {[*parameters, *tensors]}")
        return cls()


def _rounded(values: Tensor) -> Tensor:
    bits = values.contiguous().view(torch.int32)
    odd = (bits >> _DROPPED_BITS) & 1
    return ((bits + _BELOW_HALF + odd) >> _DROPPED_BITS).to(torch.uint16)


def _widened(codes: Tensor) -> Tensor:
    return (codes.to(torch.int32) << _DROPPED_BITS).view(torch.float32)
