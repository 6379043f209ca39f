"""What a codec is: how a tensor's pairs of moments become pairs of codes and back, and which pair means *escape*.

A codec holds the parameters of one tensor (its grids, its scales) and knows nothing of the guard: it encodes every
coordinate, and the caller escapes what the guard does not accept of the decoded values.

    fit       parameters from the data          stored with the codes
    encode    m, v       -> m_codes, v_codes     unguarded
    decode    the codes  -> m_hat, v_hat         a table look-up or exact bit operation, never a library's function
    escaped   the codes  -> where the reserved pair stands, which stands for an exactly stored pair of moments

Coordinates are flat, in memory order.  Any stretch of a tensor may be worked on alone: `start` is its place, which
matters only to a codec whose parameters differ along the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from guarded_moments.reference.codecs.ranges import Guard


class Codes(NamedTuple):
    """The stored codes of coordinates: two tensors of the codec's `code_type`, shape (n,)."""

    m: Tensor
    v: Tensor


class Escaped(NamedTuple):
    """A tensor encoded, guarded and escaped."""

    codes: Codes  #: with the reserved pair where the guard does not accept
    escapes: Tensor  #: float32, (escapes, 2): the native pairs, in order


class Codec(Protocol):
    """One tensor's codec."""

    name: ClassVar[str]  #: as in files and on the command line
    summary: ClassVar[str]  #: a line for lists
    code_type: ClassVar[torch.dtype]  #: of both codes
    granularities: ClassVar[bool]  #: whether `fit` takes runs of a size of the caller's choice
    search_widens: ClassVar[float]  #: the search accepts about what the closed form would at so much the tolerance
    by_rows: ClassVar[bool]  #: whether `fit` is to be told how many coordinates a row has, and nothing else
    reusable: ClassVar[bool]  #: whether the parameters of one checkpoint suit the next

    @classmethod
    def fit(cls, m: Tensor, v: Tensor, guard: Guard, size: int | None = None) -> Self:
        """Choose the parameters.

        Args:
            m: first moments, float32, shape (n,), any values.
            v: second moments, float32, shape (n,), any values.
            guard: says which coordinates would be accepted; to choose by.
            size: coordinates, in order, that share parameters; None for the whole tensor.
        """
        ...

    def encode(self, m: Tensor, v: Tensor, start: int = 0) -> Codes:
        """Codes of both moments, unguarded.

        Args:
            m: finite float32, shape (n,).
            v: finite, non-negative float32, shape (n,).
            start: place in the tensor of the first coordinate.
        """
        ...

    def decode(self, m_codes: Tensor, v_codes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32; what an escape decodes to has no meaning, and the caller replaces it.

        Args:
            m_codes: of `code_type`, shape (n,).
            v_codes: likewise.
            start: as in `encode`.
        """
        ...

    def escaped(self, m_codes: Tensor, v_codes: Tensor) -> Tensor:
        """Where the reserved pair stands: bool, (n,).  A coordinate that encodes to it is to be escaped."""
        ...

    def escape(self, codes: Codes, where: Tensor) -> Codes:
        """The codes with the reserved pair at some places."""
        ...

    def require_numel(self, numel: int) -> None:
        """Refuse parameters that are not those of a tensor with so many coordinates.

        Raises:
            FormatError: they are for more or fewer.
        """
        ...

    def low_bits(self) -> tuple[int, int] | None:
        """How many low bits of both codes, 16 bits each, a file holds as they are, eight above them being coded.

        None where a file holds codes as they are.
        """
        ...

    def alternatives(self, codes: Codes) -> Iterator[Codes]:
        """Other codes to try, in this order, where the guard does not accept the nearest; of the same shape."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """What `from_parameters` needs besides tensors: plain data for JSON."""
        ...

    def parameter_tensors(self) -> Mapping[str, Tensor]:
        """What it needs as tensors, one-dimensional, in the types they are stored in."""
        ...

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """The codec of stored parameters.

        Raises:
            FormatError: they are no parameters of this codec.
            KeyError: one is missing; also TypeError and ValueError for what is of another kind.
        """
        ...
