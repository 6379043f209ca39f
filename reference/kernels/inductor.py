"""`torch.compile` of the reference's own functions on whole tensors: encode with guard, and decode.

A codec's grids and the guard's constants go in as tensors, and sizes are dynamic, so that one compilation, of some
seconds to half a minute, serves all tensors of a codec.

Claimed: the codes, escapes and moments of the reference, bit for bit; nothing is compiled anew for another tensor.
Trusted: inductor, which for CPUs is told to contract and reassociate nothing; checked against the reference.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.encoding import encode_block
from guarded_moments.reference.codecs import BFloat16, Codec, Codes, Escaped, FloatGrid, Lin8, Log8, LogGrid
from guarded_moments.reference.codecs.tables import levels, thresholds
from guarded_moments.reference.guard.closed_form import bound_inflation, closed_form_guard, lifted, lifted_guard
from guarded_moments.reference.guard.constants import GuardConstants

#: Coordinates given to compiled code at a time.
STRETCH = 1 << 20
#: Sizes below this are compiled for each: the reference itself is used for them.
_DYNAMIC_FROM = 2


@dataclass(frozen=True)
class _OnTable:
    """A logarithmic grid by its tables: a `Grid` whose numbers are tensors."""

    thresholds: Tensor
    values: Tensor

    @property
    def levels(self) -> int:
        return self.values.shape[0]

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as `LogGrid`
        return torch.bucketize(magnitude, self.thresholds, right=True)

    def level(self, index: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as above
        return self.values[index]


@dataclass(frozen=True)
class _OnBits:
    """A grid on the float's bits by its numbers, likewise."""

    base: Tensor
    step: Tensor
    levels: int

    def nearest(self, magnitude: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as `FloatGrid`
        return FloatGrid.nearest_of(magnitude, self.base, self.step, self.levels)

    def level(self, index: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002 - as above
        return FloatGrid.level_of(index, self.base, self.step)


def _with_tensors(codec: Codec) -> Codec | None:
    """The codec with its grids as tensors; None for one that is not compiled."""
    if isinstance(codec, BFloat16):
        return codec
    kind: type = type(codec)  # itself: `joint` is a `Log8` that tries more than the nearest
    if kind not in {Log8, Lin8} or not isinstance(codec, (Log8, Lin8)):
        return None
    grids: list[Any] = []
    for grid in (codec.m_grid, codec.v_grid):
        if isinstance(grid, LogGrid):
            grids.append(_OnTable(thresholds(grid), levels(grid)))
        elif isinstance(grid, FloatGrid):
            grids.append(_OnBits(torch.tensor(grid.base), torch.tensor(grid.step), grid.levels))
        else:
            return None
    return type(codec)(*grids)


def _encoded(
    codec: Codec, k: GuardConstants[Tensor], inflation: Tensor, m: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Both codes, unguarded, and where the closed form lets them stand."""
    covered, codes = encode_block(codec, m, v, 0)
    accepted = lifted_guard(k, inflation, m, v, *codec.decode(*codes))
    return codes.m, codes.v, accepted & covered & ~codec.escaped(*codes)


def _nearest(codec: Codec, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return codec.encode(m, v)


def _decoded(codec: Codec, m_codes: Tensor, v_codes: Tensor) -> tuple[Tensor, Tensor]:
    return codec.decode(m_codes, v_codes)


@contextmanager
def compiled_for_this_process() -> Iterator[None]:
    """Keep inductor from running code that it compiled for another instruction set.

    The key of its cache on disk (torch 2.13) does not hold the capability that `ATEN_CPU_CAPABILITY` asks for; a kernel
    written for sixteen lanes and then compiled for eight leaves every second eight elements as they were, without a
    word.  So where the variable is set, the cache is neither read nor written.
    """
    inductor: Any = importlib.import_module("torch._inductor.config")  # slow, and only needed here
    with inductor.patch(force_disable_caches="ATEN_CPU_CAPABILITY" in os.environ):
        yield


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(function, dynamic=True, fullgraph=True)

    def run(*arguments: Any) -> Any:  # noqa: ANN401 - of the function
        with compiled_for_this_process():
            return compiled(*arguments)

    return run


def _alike(column: Tensor) -> Tensor:
    """The same values, contiguous and no view in torch's books: for each kind of view it would compile anew."""
    return column.contiguous().detach()


class InductorKernel:
    """One tensor's codec, by functions that torch compiles."""

    def __init__(self, codec: Codec, with_tensors: Codec) -> None:
        self._codec, self._with_tensors = codec, with_tensors

    @classmethod
    def of(cls, codec: Codec) -> InductorKernel | None:
        """Of a codec with one grid a moment (`log8`, `lin8`) or `bf16`; None for others."""
        held = _with_tensors(codec)
        return None if held is None else cls(codec, held)

    def encode(self, m: Tensor, v: Tensor) -> Codes:
        """Codes of both moments, unguarded; see `Codec.encode`."""
        m, v = _alike(m), _alike(v)
        if len(m) < _DYNAMIC_FROM:
            return self._codec.encode(m, v)
        return Codes(*_compiled(_nearest)(self._with_tensors, m, v))

    def guarded(self, constants: GuardConstants[float], m: Tensor, v: Tensor) -> Escaped:
        """Codes where the closed form accepts, exact pairs elsewhere; see `Kernel.guarded`."""
        k, inflation = lifted(constants), torch.tensor(bound_inflation(), dtype=torch.float64)
        parts: list[Escaped] = []
        for begin in range(0, max(1, len(m)), STRETCH):
            first, second = (_alike(moment[begin : begin + STRETCH]) for moment in (m, v))
            function = _encoded if len(first) < _DYNAMIC_FROM else _compiled(_encoded)
            codec = self._codec if len(first) < _DYNAMIC_FROM else self._with_tensors
            m_codes, v_codes, accepted = function(codec, k, inflation, first, second)
            codes = self._codec.escape(Codes(m_codes, v_codes), ~accepted)
            parts.append(Escaped(codes, torch.stack([first[~accepted], second[~accepted]], dim=1)))
        codes = Codes(*(torch.cat(columns) for columns in zip(*(part.codes for part in parts), strict=True)))
        return Escaped(codes, torch.cat([part.escapes for part in parts]))

    def decode(self, codes: Codes) -> tuple[Tensor, Tensor]:
        """What codes decode to, without exact pairs; see `Codec.decode`."""
        m_codes, v_codes = (_alike(column) for column in codes)
        if len(m_codes) < _DYNAMIC_FROM:
            return self._codec.decode(m_codes, v_codes)
        m, v = _compiled(_decoded)(self._with_tensors, m_codes, v_codes)
        return m, v

    def recovered(self, codes: Codes, escapes: Tensor) -> tuple[Tensor, Tensor]:
        """The recovered moments with the exact pairs in their places."""
        m, v = self.decode(codes)
        escaped = self._codec.escaped(*codes)
        m[escaped], v[escaped] = escapes[:, 0], escapes[:, 1]
        return m, v


def guard(constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
    """Where the closed form guarantees the claim; see `closed_form_guard`."""
    if len(m) < _DYNAMIC_FROM:
        return closed_form_guard(constants, m, v, m_hat, v_hat)
    columns = (_alike(column) for column in (m, v, m_hat, v_hat))
    accepted: Tensor = _compiled(lifted_guard)(
        lifted(constants), torch.tensor(bound_inflation(), dtype=torch.float64), *columns
    )
    return accepted
