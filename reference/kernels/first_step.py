"""The first Adam step after recovery, from codes: decode, exact pairs and the whole update in one pass.

A block of codes becomes moments in a core's first-level cache, and is stepped before it leaves it: the recovered
moments are never written to memory.  The step is `adam`'s one source over `CompiledBinary32`.  A platform's root is
called on arrays, as the black box it is, between two compiled passes over a stretch that stays in the second-level
cache.

Claimed: parameter and moments are those of `Kernel.recovered` followed by the step of the op models, element by
element, bit for bit (NaN payloads apart).  Trusted: numba's compiler, checked against the reference and torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions, make_from_root, make_until_root
from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.codecs import Codec, Codes
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.implementations import Implementation
from guarded_moments.reference.kernels.codecs import BLOCK, Kernel, count_escapes, make_block_recovery
from guarded_moments.reference.kernels.guarding import inlined
from guarded_moments.reference.kernels.marking import make_room
from guarded_moments.reference.kernels.stretches import bits, mapped, with_escapes
from guarded_moments.reference.op_models import OpModel, SquareRoot

#: Coordinates between whose two passes a platform's root is called: five float32 of each fit a second-level cache.
ROOT_STRETCH = 1 << 15


class FirstStep:
    """The first step of one tensor after recovery."""

    def __init__(
        self, kernel: Kernel, implementation: Implementation, options: StepOptions, scalars: Scalars[float]
    ) -> None:
        """Fix the codec, the op models and the constants.

        Args:
            kernel: the compiled loops of the tensor's codec.
            implementation: which op model each element follows.
            options: per-tensor choices.
            scalars: the kernel's constants.

        Raises:
            UnsupportedError: amsgrad, whose third moment the pass does not read.
        """
        if options.amsgrad:
            raise UnsupportedError("amsgrad: the fused pass reads no third moment; recover the state, then step")
        self._kernel, self._implementation, self._options = kernel, implementation, options
        self._scalars = scalars

    def __call__(
        self,
        codes: Codes,
        escapes: Tensor,
        p: Tensor,
        g: Tensor,
        *,
        into: tuple[Tensor, Tensor] | None = None,
        workers: int = 1,
        threads: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Step `p` in place, and return both moments after the step: float32, (n,).

        Args:
            codes: of the tensor, (n,).
            escapes: its exact pairs, float32, (escapes, 2).
            p: the parameter in the order of the codes, contiguous float32, (n,).
            g: its gradient, likewise.
            into: memory for the moments, contiguous; new by default.
            workers: how many stretches are worked on at a time.
            threads: intra-op threads of the run whose op model this is, see `Implementation.assign`.

        Raises:
            FormatError: there are more or fewer escapes than codes that stand for one.
            ValueError: `p` or `g` is no contiguous float32 tensor of the codes' shape.
        """
        for name, tensor in (("p", p), ("g", g)):
            if tensor.shape != codes.m.shape or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
                msg = (
                    f"{name} is {tensor.dtype}, {tuple(tensor.shape)}, strides {tensor.stride()}: expected contiguous "
                )
                raise ValueError(f"{msg}float32, {tuple(codes.m.shape)}")
        m, v = into or (torch.empty(len(p)), torch.empty(len(p)))
        columns = Columns(codes.m.contiguous(), codes.v.contiguous(), p.detach(), g.detach(), m, v)
        alike = self._implementation.steps_alike(self._options)

        def work(stretch: slice, exact: Tensor) -> None:
            here = columns.at(stretch)
            places = self._implementation.second_places(len(m), self._options, stretch, threads) - stretch.start
            if alike or not len(places):
                self._advance(self._implementation.body, here, exact)
                return
            others = here.at(places)  # copies, and `p` of before the step
            escaped = self._kernel.codec.escaped(here.m_codes, here.v_codes)
            rank = torch.searchsorted(escaped.nonzero().flatten(), places)
            self._advance(self._implementation.body, here, exact)
            self._advance(self._implementation.models[1], others, exact[rank[escaped[places]]])
            here.p[places], here.m[places], here.v[places] = others.p, others.m, others.v

        mapped(work, with_escapes(codes, count_escapes(type(self._kernel.codec)), escapes, workers), workers)
        return m, v

    def _advance(self, model: OpModel, columns: Columns, exact: Tensor) -> None:
        advance(self._kernel, model, self._options, self._scalars, columns, exact)


class Columns(NamedTuple):
    """What a step reads and writes, an entry a coordinate."""

    m_codes: Tensor
    v_codes: Tensor
    p: Tensor  #: written too
    g: Tensor
    m: Tensor  #: only written, as is `v`
    v: Tensor

    def at(self, places: slice | Tensor) -> Columns:
        """Some of the coordinates: views at a slice, copies at places."""
        return Columns(*(column[places] for column in self))

    def arrays(self) -> _Arrays:
        """The same as compiled code takes it."""
        columns = [column.numpy() for column in self]
        return _Arrays(*columns, *(bits(moment) for moment in (self.m, self.v)))


def advance(
    kernel: Kernel, model: OpModel, options: StepOptions, scalars: Scalars[float], columns: Columns, exact: Tensor
) -> None:
    """Step coordinates that all follow one op model.

    Args:
        kernel: the compiled loops of their codec.
        model: the op model.
        options: per-tensor choices, without amsgrad.
        scalars: the kernel's constants.
        columns: the coordinates.
        exact: their exact pairs, float32, (escapes, 2), as many as there are codes that stand for one.
    """
    passes, grids = _compiled(type(kernel.codec), model, options), kernel.parameters
    k, arrays = Scalars(*(np.float32(value) for value in scalars)), columns.arrays()
    if model.square_root is SquareRoot.CORRECT:
        passes.to_root_or_end(*grids, k, *arrays, bits(exact))
        return
    rooted, used = torch.empty(min(ROOT_STRETCH, len(columns.m))), 0
    for begin in range(0, len(columns.m), ROOT_STRETCH):
        part = slice(begin, min(begin + ROOT_STRETCH, len(columns.m)))
        used += passes.to_root_or_end(*grids, k, *(array[part] for array in arrays), bits(exact[used:]))
        root = torch.sqrt(columns.v[part], out=rooted[: part.stop - begin])
        passes.from_root(arrays.p[part], arrays.m[part], root.numpy(), k)


class _Arrays(NamedTuple):
    """The columns as arrays of NumPy, and the moments' bits."""

    m_codes: Any
    v_codes: Any
    p: Any
    g: Any
    m: Any
    v: Any
    m_bits: Any
    v_bits: Any


class _Passes(NamedTuple):
    """The compiled passes of a codec and an op model."""

    #: The whole step, or where the root is a platform's all that precedes it; returns how many exact pairs were used.
    to_root_or_end: Callable[..., int]  #: `(m_grid, v_grid, k, *_Arrays, escapes)`
    from_root: Callable[..., None]  #: `(p, m, root, k)`: the rest, `p` in place


@cache
def _compiled(kind: type[Codec], model: OpModel, options: StepOptions) -> _Passes:
    """Build both; each is compiled when it is first called."""
    op: Any = CompiledBinary32()
    recover_block, make_marks = make_block_recovery(kind), make_room(BLOCK)
    until_root_of, from_root_of = make_until_root(op, model, options, inlined), make_from_root(op, model, inlined)
    root_of = op.sqrt

    if model.square_root is SquareRoot.CORRECT:

        @inlined
        def advanced(p, g, m, v, k):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
            p, m, v = until_root_of(p, g, m, v, k)
            return from_root_of(p, m, root_of(v), k), m, v
    else:
        advanced = until_root_of

    @numba.njit(error_model="numpy", nogil=True)
    def advance(p, g, m, v, k):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        for i in range(len(p)):
            p[i], m[i], v[i] = advanced(p[i], g[i], m[i], v[i], k)

    @numba.njit(error_model="numpy", nogil=True)
    def from_root(p, m, root, k):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        for i in range(len(p)):
            p[i] = from_root_of(p[i], m[i], root[i], k)

    @numba.njit(error_model="numpy", nogil=True)
    def to_root_or_end(m_grid, v_grid, k, m_codes, v_codes, p, g, m, v, m_bits, v_bits, escapes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        room, used = make_marks(), 0
        for begin in range(0, len(p), BLOCK):
            block = slice(begin, min(begin + BLOCK, len(p)))
            codes, moments = (m_codes[block], v_codes[block]), (m_bits[block], v_bits[block])
            used = recover_block(m_grid, v_grid, *codes, *moments, room, escapes, used)
            advance(p[block], g[block], m[block], v[block], k)
        return used

    return _Passes(to_root_or_end, from_root)
