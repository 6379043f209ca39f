"""Whole tensors by compiled loops: encode, guard and escape in one pass, decode and scatter in another.

A tensor passes through a core's first-level cache block by block; what leaves it is codes and the exact pairs of what
is escaped.  Stretches of a tensor may be given to threads: none waits for another.

Claimed: the codes, escapes and moments of `checkpoint.encoding` with the closed form and of `checkpoint.state`, bit for
bit.  Trusted: numba's compiler, checked against the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.errors import FormatError
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.kernels.guarding import compiled_guard, mark_outside_domain
from guarded_moments.reference.kernels.loops import LOOPS, CodecLoops, parameters_of

#: Coordinates whose native and decoded moments, codes and verdicts stay in a core's first-level cache together.
BLOCK = 512
#: Coordinates of a stretch: what a thread takes at a time, and whose escapes are gathered in one buffer.
STRETCH = 1 << 20


class Kernel:
    """The compiled loops of one tensor's codec."""

    def __init__(self, codec: Codec, parameters: tuple[Any, Any]) -> None:
        self._codec, self._m, self._v = codec, *parameters

    @classmethod
    def of(cls, codec: Codec) -> Kernel | None:
        """The loops of a codec, or None: there are some for single grids of `log8` and `lin8`, and for `bf16`."""
        parameters = parameters_of(codec)
        return None if parameters is None else cls(codec, parameters)

    def encode(self, m: Tensor, v: Tensor) -> Codes:
        """Codes of both moments, unguarded; see `Codec.encode`."""
        codes = self._empty_codes(len(m))
        loops = LOOPS[type(self._codec)]
        loops.nearest(self._m, _bits(m), codes.m.numpy())
        loops.nearest(self._v, _bits(v), codes.v.numpy())
        return codes

    def guarded(self, constants: GuardConstants[float], m: Tensor, v: Tensor, threads: int = 1) -> Escaped:
        """Codes where the closed form accepts, exact pairs elsewhere.

        Args:
            constants: of the guard.
            m: first moments, float32, shape (n,), any values.
            v: second moments, likewise.
            threads: how many stretches are worked on at a time.
        """
        m, v = m.contiguous(), v.contiguous()
        held = binary64_constants(constants)
        codes, inflation = self._empty_codes(len(m)), bound_inflation()
        loop = compiled_pass(type(self._codec)).guarded
        arrays = (m.numpy(), v.numpy(), _bits(m), _bits(v), codes.m.numpy(), codes.v.numpy())

        def work(stretch: slice) -> Tensor:
            parts = [array[stretch] for array in arrays]
            escapes = np.empty((len(parts[0]), 2), dtype=np.uint32)
            count = loop(self._m, self._v, held, inflation, *parts, escapes)
            return torch.from_numpy(escapes[:count].copy()).view(torch.float32)

        escapes = _mapped(work, [(stretch,) for stretch in _stretches(len(m))], threads)
        return Escaped(codes, torch.cat(escapes) if escapes else torch.empty((0, 2)))

    def decode(self, codes: Codes) -> tuple[Tensor, Tensor]:
        """What codes decode to, without exact pairs; see `Codec.decode`."""
        m, v = (torch.empty(len(codes.m), dtype=torch.float32) for _ in range(2))
        loops = LOOPS[type(self._codec)]
        loops.level(self._m, codes.m.contiguous().numpy(), _bits(m))
        loops.level(self._v, codes.v.contiguous().numpy(), _bits(v))
        return m, v

    def recovered(self, codes: Codes, escapes: Tensor, threads: int = 1) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32, (n,), with the exact pairs in their places.

        Args:
            codes: of the tensor.
            escapes: float32, (escapes, 2).
            threads: as in `guarded`.

        Raises:
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        m, v = (torch.empty(len(codes.m), dtype=torch.float32) for _ in range(2))
        arrays = (codes.m.contiguous().numpy(), codes.v.contiguous().numpy(), _bits(m), _bits(v))
        exact, loop = _pairs(escapes), compiled_pass(type(self._codec)).recovered
        jobs, begin = [], 0
        for stretch in _stretches(len(m)):
            end = begin + int(self._codec.escaped(codes.m[stretch], codes.v[stretch]).sum())
            jobs.append((stretch, exact[begin:end]))
            begin = end
        if begin != len(exact):
            raise FormatError(f"{begin} codes stand for exact pairs, of which there are {len(exact)}")

        def work(stretch: slice, exact: Any) -> None:  # noqa: ANN401 - an array of numpy
            loop(self._m, self._v, *(array[stretch] for array in arrays), exact)

        _mapped(work, jobs, threads)
        return m, v

    def _empty_codes(self, count: int) -> Codes:
        return Codes(*(torch.empty(count, dtype=self._codec.code_type) for _ in range(2)))


def _stretches(count: int) -> Iterator[slice]:
    return (slice(begin, min(begin + STRETCH, count)) for begin in range(0, count, STRETCH))


def _mapped(work: Callable[..., Any], jobs: list[tuple[Any, ...]], threads: int) -> list[Any]:
    if threads <= 1 or len(jobs) <= 1:
        return [work(*job) for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *zip(*jobs, strict=True)))


def _bits(moment: Tensor) -> Any:  # noqa: ANN401 - an array of numpy
    return moment.contiguous().numpy().view(np.uint32)


def _pairs(escapes: Tensor) -> Any:  # noqa: ANN401 - as above
    return escapes.contiguous().numpy().view(np.uint32)


class Passes(NamedTuple):
    """The compiled passes of one codec, over a stretch."""

    guarded: Callable[..., int]  #: `(m_grid, v_grid, k, inflation, m, v, m_bits, v_bits, m_codes, v_codes, escapes)`
    recovered: Callable[..., None]  #: `(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, escapes)`


class _Marks(NamedTuple):
    """Loops over the uint8 marks of a block."""

    any_of: Callable[..., bool]
    add_escapes: Callable[..., None]  #: where the first moment's code is that of the escape


def _marks(escape: np.unsignedinteger[Any]) -> _Marks:
    @numba.njit(error_model="numpy")
    def any_of(marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        found = np.uint8(0)
        for i in range(len(marks)):
            found |= marks[i]
        return found != 0

    @numba.njit(error_model="numpy")
    def add_escapes(codes, marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        for i in range(len(codes)):
            marks[i] |= np.uint8(codes[i] == escape)

    return _Marks(any_of, add_escapes)


@cache
def compiled_pass(kind: type[Codec]) -> Passes:
    """Build both; each is compiled when it is first called."""
    loops = LOOPS[kind]
    escape = loops.code_type(loops.escape)
    return Passes(_guarded(loops, escape), _recovered(loops, escape))


def _guarded(loops: CodecLoops, escape: np.unsignedinteger[Any]) -> Callable[..., int]:
    nearest, level, judge, zero = loops.nearest, loops.level, compiled_guard(), loops.code_type(0)
    any_of, add_escapes = _marks(escape)

    @numba.njit(error_model="numpy", nogil=True)
    def guarded(m_grid, v_grid, k, inflation, m, v, m_bits, v_bits, m_codes, v_codes, escapes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        m_hat, v_hat, marks = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.uint8)
        m_hat_bits, v_hat_bits = m_hat.view(np.uint32), v_hat.view(np.uint32)
        count = 0
        for begin in range(0, len(m), BLOCK):
            end = min(begin + BLOCK, len(m))
            size = end - begin
            nearest(m_grid, m_bits[begin:end], m_codes[begin:end])
            nearest(v_grid, v_bits[begin:end], v_codes[begin:end])
            level(m_grid, m_codes[begin:end], m_hat_bits[:size])
            level(v_grid, v_codes[begin:end], v_hat_bits[:size])
            judge(k, inflation, m[begin:end], v[begin:end], m_hat[:size], v_hat[:size], marks[:size])
            mark_outside_domain(m_bits[begin:end], v_bits[begin:end], marks[:size])
            mark_outside_domain(m_hat_bits[:size], v_hat_bits[:size], marks[:size])
            add_escapes(m_codes[begin:end], marks[:size])
            if any_of(marks[:size]):
                for i in range(size):
                    if marks[i]:
                        escapes[count, 0], escapes[count, 1] = m_bits[begin + i], v_bits[begin + i]
                        m_codes[begin + i], v_codes[begin + i] = escape, zero
                        count += 1
        return count

    result: Callable[..., int] = guarded
    return result


def _recovered(loops: CodecLoops, escape: np.unsignedinteger[Any]) -> Callable[..., None]:
    level = loops.level
    any_of, add_escapes = _marks(escape)

    @numba.njit(error_model="numpy", nogil=True)
    def recovered(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, escapes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        marks = np.empty(BLOCK, np.uint8)
        count = 0
        for begin in range(0, len(m_codes), BLOCK):
            end = min(begin + BLOCK, len(m_codes))
            level(m_grid, m_codes[begin:end], m_bits[begin:end])
            level(v_grid, v_codes[begin:end], v_bits[begin:end])
            marks[:] = 0
            add_escapes(m_codes[begin:end], marks[: end - begin])
            if any_of(marks):
                for i in range(end - begin):
                    if marks[i]:
                        m_bits[begin + i], v_bits[begin + i] = escapes[count, 0], escapes[count, 1]
                        count += 1

    result: Callable[..., None] = recovered
    return result
