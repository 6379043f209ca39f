"""Whole tensors by compiled loops: encode, guard and escape in one pass, decode and scatter in another.

A tensor passes through a core's first-level cache block by block; what leaves it is codes and the exact pairs of what
is escaped.  Stretches of a tensor may be given to threads: none waits for another.

Claimed: the codes, escapes and moments of `checkpoint.encoding` with the closed form and of `checkpoint.state`, bit for
bit.  Trusted: numba's compiler, checked against the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.kernels.filtering import State, filtered_guard, make_block_guard
from guarded_moments.reference.kernels.loops import LOOPS, CodecLoops, parameters_of
from guarded_moments.reference.kernels.marking import any_marked, list_marked, make_escape_marks, make_room
from guarded_moments.reference.kernels.stretches import bits, mapped, stretches, with_escapes

#: Coordinates whose native and decoded moments, codes and verdicts stay in a core's first-level cache together.
BLOCK = 512


class Kernel:
    """The compiled loops of one tensor's codec."""

    def __init__(self, codec: Codec, parameters: tuple[Any, Any]) -> None:
        self.codec, self.parameters = codec, parameters  #: as `loops.parameters_of` gives them
        self._m, self._v = parameters

    @classmethod
    def of(cls, codec: Codec) -> Kernel | None:
        """The loops of a codec, or None: there are some for `bf16`, and for `log8`, `lin8` and `ratio8` per tensor."""
        parameters = parameters_of(codec)
        return None if parameters is None else cls(codec, parameters)

    def encode(self, m: Tensor, v: Tensor) -> Codes:
        """Codes of both moments, unguarded; see `Codec.encode`."""
        codes = self._empty_codes(len(m))
        LOOPS[type(self.codec)].encode(self._m, self._v, bits(m), bits(v), codes.m.numpy(), codes.v.numpy())
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
        codes, guard = self._empty_codes(len(m)), filtered_guard(constants)
        loop = compiled_pass(type(self.codec)).guarded
        arrays = (m.numpy(), v.numpy(), bits(m), bits(v), codes.m.numpy(), codes.v.numpy())

        def work(stretch: slice) -> Tensor:
            parts = [array[stretch] for array in arrays]
            escapes = np.empty((len(parts[0]), 2), dtype=np.uint32)
            count = loop(self._m, self._v, guard, *parts, escapes)
            return torch.from_numpy(escapes[:count].copy()).view(torch.float32)

        escapes = mapped(work, [(stretch,) for stretch in stretches(len(m))], threads)
        return Escaped(codes, torch.cat(escapes) if escapes else torch.empty((0, 2)))

    def decode(self, codes: Codes) -> tuple[Tensor, Tensor]:
        """What codes decode to, without exact pairs; see `Codec.decode`."""
        m, v = (torch.empty(len(codes.m), dtype=torch.float32) for _ in range(2))
        arrays = (codes.m.contiguous().numpy(), codes.v.contiguous().numpy())
        LOOPS[type(self.codec)].decode(self._m, self._v, *arrays, bits(m), bits(v))
        return m, v

    def recovered(
        self, codes: Codes, escapes: Tensor, threads: int = 1, into: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32, (n,), with the exact pairs in their places.

        Args:
            codes: of the tensor.
            escapes: float32, (escapes, 2).
            threads: as in `guarded`.
            into: memory for the moments, contiguous; new by default.

        Raises:
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        m, v = into or (torch.empty(len(codes.m)), torch.empty(len(codes.m)))
        arrays = (codes.m.contiguous().numpy(), codes.v.contiguous().numpy(), bits(m), bits(v))
        loop = compiled_pass(type(self.codec)).recovered

        def work(stretch: slice, exact: Tensor) -> None:
            loop(self._m, self._v, *(array[stretch] for array in arrays), bits(exact))

        mapped(work, with_escapes(codes, count_escapes(type(self.codec)), escapes, threads), threads)
        return m, v

    def _empty_codes(self, count: int) -> Codes:
        return Codes(*(torch.empty(count, dtype=self.codec.code_type) for _ in range(2)))


def count_escapes(kind: type[Codec]) -> Callable[[Any], int]:
    """The compiled count of escapes among the first moment's codes."""
    loops = LOOPS[kind]
    return make_escape_marks(loops.code_type(loops.escape)).count


class Passes(NamedTuple):
    """The compiled passes of one codec, over a stretch."""

    guarded: Callable[..., int]  #: `(m_grid, v_grid, guard, m, v, m_bits, v_bits, m_codes, v_codes, escapes)`
    recovered: Callable[..., None]  #: `(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, escapes)`


@cache
def compiled_pass(kind: type[Codec]) -> Passes:
    """Build both; each is compiled when it is first called."""
    return Passes(_guarded(LOOPS[kind]), _recovered(kind))


def _guarded(loops: CodecLoops) -> Callable[..., int]:
    encode, decode, judge, zero = loops.encode, loops.decode, make_block_guard(BLOCK), loops.code_type(0)
    escape = loops.code_type(loops.escape)
    add_escapes, make_marks = make_escape_marks(escape).add, make_room(BLOCK)

    @numba.njit(error_model="numpy", nogil=True)
    def guarded(m_grid, v_grid, guard, m, v, m_bits, v_bits, m_codes, v_codes, escapes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        m_hat, v_hat, room = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), make_marks()
        m_hat_bits, v_hat_bits = m_hat.view(np.uint32), v_hat.view(np.uint32)
        count = 0
        for begin in range(0, len(m), BLOCK):
            end = min(begin + BLOCK, len(m))
            size = end - begin
            room.marks[size:] = 0
            encode(m_grid, v_grid, m_bits[begin:end], v_bits[begin:end], m_codes[begin:end], v_codes[begin:end])
            decode(m_grid, v_grid, m_codes[begin:end], v_codes[begin:end], m_hat_bits[:size], v_hat_bits[:size])
            native, recovered = (m[begin:end], v[begin:end]), (m_hat[:size], v_hat[:size])
            bits = (m_bits[begin:end], v_bits[begin:end], m_hat_bits[:size], v_hat_bits[:size])
            judge(guard, State(*native, *recovered, *bits), room.marks[:size])
            add_escapes(m_codes[begin:end], room.marks[:size])
            if any_marked(room.marks):
                for place in list_marked(room):
                    i = begin + place
                    escapes[count, 0], escapes[count, 1] = m_bits[i], v_bits[i]
                    m_codes[i], v_codes[i] = escape, zero
                    count += 1
        return count

    result: Callable[..., int] = guarded
    return result


@cache
def make_block_recovery(kind: type[Codec]) -> Callable[..., int]:
    """Build `recover_block(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, room, escapes, used) -> used`, compiled.

    It decodes a block, puts the exact pairs in their places, from the one numbered `used` on, and returns the number of
    the next; `room` is of `marking`.
    """
    loops = LOOPS[kind]
    decode, add_escapes = loops.decode, make_escape_marks(loops.code_type(loops.escape)).add

    @numba.njit(error_model="numpy", nogil=True)
    def recover_block(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, room, escapes, used):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        room.marks[:] = 0
        decode(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits)
        add_escapes(m_codes, room.marks[: len(m_codes)])
        if any_marked(room.marks):
            for place in list_marked(room):
                m_bits[place], v_bits[place] = escapes[used, 0], escapes[used, 1]
                used += 1
        return used

    result: Callable[..., int] = recover_block
    return result


def _recovered(kind: type[Codec]) -> Callable[..., None]:
    recover_block, make_marks = make_block_recovery(kind), make_room(BLOCK)

    @numba.njit(error_model="numpy", nogil=True)
    def recovered(m_grid, v_grid, m_codes, v_codes, m_bits, v_bits, escapes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        room, used = make_marks(), 0
        for begin in range(0, len(m_codes), BLOCK):
            block = slice(begin, min(begin + BLOCK, len(m_codes)))
            codes, moments = (m_codes[block], v_codes[block]), (m_bits[block], v_bits[block])
            used = recover_block(m_grid, v_grid, *codes, *moments, room, escapes, used)

    result: Callable[..., None] = recovered
    return result
