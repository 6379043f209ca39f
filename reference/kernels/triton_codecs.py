"""Encode, guard and escape, decode, and the first step as Triton kernels: for GPUs, or in Triton's interpreter.

The guard is the closed form's one source and the step `adam`'s, over `TritonBinary64` and `TritonBinary32`.  Where
there is no GPU the same kernels run in the interpreter, block by block in NumPy: for tests, not for speed.

    guarded   moments -> codes, the escape where the closed form does not accept     one pass
    levels    codes -> moments, exact pairs in their places                          one pass
    stepped   codes, parameter, gradient -> parameter and moments after a step       one pass

Claimed: the codes, escapes, moments and steps of the reference, bit for bit (NaN payloads of steps apart).  Trusted:
Triton's compiler; the tests read what it makes of the kernels.  Never run on a GPU by this package's authors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from guarded_moments.reference.adam import (
    Jit,
    Scalars,
    StepOptions,
    as_is,
    make_from_root,
    make_until_root,
    make_update,
)
from guarded_moments.reference.arithmetic.triton_operations import (
    OPTIONS,
    TritonBinary32,
    TritonBinary64,
    jit,
    running_sum,
)
from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.errors import FormatError, UnsupportedError
from guarded_moments.reference.guard.closed_form import bound_inflation, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.kernels.loops import LOOPS, OnRoots, parameters_of
from guarded_moments.reference.kernels.triton_loops import Loops, domain, grid_array, loops_for
from guarded_moments.reference.op_models import OpModel, SquareRoot

#: Coordinates of a program of `step_kernel` on a GPU, and of any in the interpreter, whose price is by program.
BLOCK, INTERPRETED_BLOCK = 1024, 1 << 15
#: What is tried for the others, once a process: coordinates of a program, and its warps.
TUNED = tuple((block, warps) for block in (256, 512, 1024, 2048) for warps in (2, 4, 8))
_M_MASK, _V_MASK = 0x7F, 0xFF  #: of a code's magnitude


def guarded_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN201 - typed by Triton, as all below
    m_ptr,  # noqa: ANN001
    v_ptr,  # noqa: ANN001
    m_codes_ptr,  # noqa: ANN001
    v_codes_ptr,  # noqa: ANN001
    m_grid_ptr,  # noqa: ANN001
    v_grid_ptr,  # noqa: ANN001
    k_ptr,  # noqa: ANN001
    n,  # noqa: ANN001
    nearest: tl.constexpr,
    level: tl.constexpr,
    judge: tl.constexpr,
    in_domain: tl.constexpr,
    M_MASK: tl.constexpr,
    V_MASK: tl.constexpr,
    ESCAPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Codes of both moments where the closed form accepts, the escape elsewhere."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    m, v = tl.load(m_ptr + at, inside, 0.0), tl.load(v_ptr + at, inside, 0.0)
    m_bits, v_bits = m.to(tl.int32, bitcast=True), v.to(tl.int32, bitcast=True)
    m_codes, v_codes = nearest(m_grid_ptr, m_bits, M_MASK), nearest(v_grid_ptr, v_bits, V_MASK)
    m_hat_bits, v_hat_bits = level(m_grid_ptr, m_codes, M_MASK), level(v_grid_ptr, v_codes, V_MASK)
    m_hat, v_hat = m_hat_bits.to(tl.float32, bitcast=True), v_hat_bits.to(tl.float32, bitcast=True)
    accepted = judge(k_ptr, m, v, m_hat, v_hat) & in_domain(m_bits, v_bits) & in_domain(m_hat_bits, v_hat_bits)
    accepted = accepted & (m_codes != ESCAPE)
    tl.store(m_codes_ptr + at, tl.where(accepted, m_codes, ESCAPE).to(m_codes_ptr.dtype.element_ty), inside)
    tl.store(v_codes_ptr + at, tl.where(accepted, v_codes, 0).to(v_codes_ptr.dtype.element_ty), inside)


def nearest_kernel(bits_ptr, codes_ptr, grid_ptr, n, nearest: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Codes of one moment, unguarded."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    codes = nearest(grid_ptr, tl.load(bits_ptr + at, at < n, 0), MASK)
    tl.store(codes_ptr + at, codes.to(codes_ptr.dtype.element_ty), at < n)


def level_kernel(codes_ptr, bits_ptr, grid_ptr, n, level: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """What one moment's codes decode to."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(bits_ptr + at, level(grid_ptr, tl.load(codes_ptr + at, at < n, 0).to(tl.int32), MASK), at < n)


def judge_kernel(m_ptr, v_ptr, m_hat_ptr, v_hat_ptr, out_ptr, k_ptr, n, judge: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Where the bound of the closed form is within the tolerance, or both states are one."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m, v = tl.load(m_ptr + at, at < n, 0.0), tl.load(v_ptr + at, at < n, 0.0)
    m_hat, v_hat = tl.load(m_hat_ptr + at, at < n, 0.0), tl.load(v_hat_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, judge(k_ptr, m, v, m_hat, v_hat).to(tl.uint8), at < n)


def update_kernel(m_ptr, v_ptr, g_ptr, out_ptr, k_ptr, n, update: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """The update of an op model."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m, v = tl.load(m_ptr + at, at < n, 0.0), tl.load(v_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, update(k_ptr, m, v, tl.load(g_ptr + at, at < n, 0.0)), at < n)


def step_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN201
    m_codes_ptr,  # noqa: ANN001
    v_codes_ptr,  # noqa: ANN001
    escapes_ptr,  # noqa: ANN001
    before_ptr,  # noqa: ANN001
    p_ptr,  # noqa: ANN001
    g_ptr,  # noqa: ANN001
    m_ptr,  # noqa: ANN001
    v_ptr,  # noqa: ANN001
    m_grid_ptr,  # noqa: ANN001
    v_grid_ptr,  # noqa: ANN001
    k_ptr,  # noqa: ANN001
    n,  # noqa: ANN001
    level: tl.constexpr,
    running: tl.constexpr,
    step: tl.constexpr,
    M_MASK: tl.constexpr,
    V_MASK: tl.constexpr,
    ESCAPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Recover a block, its exact pairs in their places, and step it; `before` counts the escapes before each block."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    m_codes = tl.load(m_codes_ptr + at, inside, 0).to(tl.int32)
    v_codes = tl.load(v_codes_ptr + at, inside, 0).to(tl.int32)
    m = level(m_grid_ptr, m_codes, M_MASK).to(tl.float32, bitcast=True)
    v = level(v_grid_ptr, v_codes, V_MASK).to(tl.float32, bitcast=True)
    escaped = inside & (m_codes == ESCAPE)
    rank = tl.load(before_ptr + tl.program_id(0)) + running(escaped.to(tl.int64)) - 1
    m = tl.where(escaped, tl.load(escapes_ptr + 2 * rank, escaped, 0.0), m)
    v = tl.where(escaped, tl.load(escapes_ptr + 2 * rank + 1, escaped, 0.0), v)
    p, m, v = step(k_ptr, tl.load(p_ptr + at, inside, 0.0), tl.load(g_ptr + at, inside, 0.0), m, v)
    tl.store(p_ptr + at, p, inside)
    tl.store(m_ptr + at, m, inside)
    tl.store(v_ptr + at, v, inside)


@cache
def launcher(kernel: Callable[..., Any], *, interpreted: bool) -> Any:  # noqa: ANN401 - Triton's
    """The kernel as Triton launches it: `launcher(kernel)[grid](...)`."""
    if interpreted:
        from triton.runtime.interpreter import InterpretedFunction  # noqa: PLC0415 - the interpreter

        return InterpretedFunction(kernel)
    if kernel is step_kernel:  # its escapes are counted by blocks before it runs
        return jit(kernel)
    configurations = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in TUNED]
    return triton.autotune(configurations, key=[])(jit(kernel))


@cache
def make_judge(*, interpreted: bool) -> Callable[..., Any]:
    """Build `judge(k_ptr, m, v, m_hat, v_hat)`: bool, by the closed form; `k` are its constants, then the inflation."""
    make: Jit = as_is if interpreted else jit
    op: Any = TritonBinary64(interpreted=interpreted)
    bound_of = make_deviation_bound(op, make)

    def judge(k_ptr, m, v, m_hat, v_hat):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        k = GuardConstants(
            tl.load(k_ptr),
            tl.load(k_ptr + 1),
            tl.load(k_ptr + 2),
            tl.load(k_ptr + 3),
            tl.load(k_ptr + 4),
            tl.load(k_ptr + 5),
            tl.load(k_ptr + 6),
            tl.load(k_ptr + 7),
            tl.load(k_ptr + 8),
            tl.load(k_ptr + 9),
            tl.load(k_ptr + 10),
            tl.load(k_ptr + 11),
            tl.load(k_ptr + 12),
            tl.load(k_ptr + 13),
            tl.load(k_ptr + 14),
            tl.load(k_ptr + 15),
        )
        bound = bound_of(k, m.to(tl.float64), v.to(tl.float64), m_hat.to(tl.float64), v_hat.to(tl.float64))
        return (bound * tl.load(k_ptr + 16) <= k.threshold) | ((m == m_hat) & (v == v_hat))

    result: Callable[..., Any] = make(judge)
    return result


def _scalars_at(k_ptr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return Scalars(
        tl.load(k_ptr),
        tl.load(k_ptr + 1),
        tl.load(k_ptr + 2),
        tl.load(k_ptr + 3),
        tl.load(k_ptr + 4),
        tl.load(k_ptr + 5),
        tl.load(k_ptr + 6),
        tl.load(k_ptr + 7),
        tl.load(k_ptr + 8),
        tl.load(k_ptr + 9),
        tl.load(k_ptr + 10),
        tl.load(k_ptr + 11),
    )


def _arithmetic(model: OpModel, *, interpreted: bool) -> tuple[Any, Jit]:
    if model.square_root is SquareRoot.PLATFORM:
        raise UnsupportedError(f"{model.name}: its square root is a CPU's vector library's, which Triton has not")
    return TritonBinary32(interpreted=interpreted), as_is if interpreted else jit


@cache
def make_update_at(model: OpModel, options: StepOptions, *, interpreted: bool) -> Callable[..., Any]:
    """Build `update(k_ptr, m, v, g)` of an op model, `k` its `Scalars`.

    Raises:
        UnsupportedError: its root is a platform's.
    """
    op, make = _arithmetic(model, interpreted=interpreted)
    update_of, scalars_at = make_update(op, model, options, make), make(_scalars_at)

    def update(k_ptr, m, v, g):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return update_of(m, v, g, scalars_at(k_ptr))

    result: Callable[..., Any] = make(update)
    return result


@cache
def make_step_at(model: OpModel, options: StepOptions, *, interpreted: bool) -> Callable[..., Any]:
    """Build `step(k_ptr, p, g, m, v) -> (p, m, v)`, without amsgrad, likewise."""
    op, make = _arithmetic(model, interpreted=interpreted)
    until_root, from_root = make_until_root(op, model, options, make), make_from_root(op, model, make)
    root_of, scalars_at = op.sqrt, make(_scalars_at)

    def step(k_ptr, p, g, m, v):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        k = scalars_at(k_ptr)
        kept, new_m, new_v = until_root(p, g, m, v, k)
        return from_root(kept, new_m, root_of(new_v), k), new_m, new_v

    result: Callable[..., Any] = make(step)
    return result


def constants_array(constants: GuardConstants[float], device: torch.device) -> Tensor:
    """What `judge` reads: float64, (17,)."""
    return torch.tensor([*constants, bound_inflation()], dtype=torch.float64, device=device)


class TritonKernel:
    """The kernels of one tensor's codec, on a GPU or interpreted on the CPU."""

    def __init__(self, codec: Codec, parameters: tuple[Any, Any], device: torch.device | str) -> None:
        self.codec, self.device = codec, torch.device(device)
        self.interpreted = self.device.type == "cpu"
        self._grids = [grid_array(grid).to(self.device) for grid in parameters]
        kind: type = type(parameters[0])
        self._loops: Loops = loops_for(kind, interpreted=self.interpreted)
        self._escape = LOOPS[type(codec)].escape

    @classmethod
    def of(cls, codec: Codec, device: torch.device | str) -> TritonKernel | None:
        """The kernels of a codec, or None: there are some where `Kernel` has loops, but for `ratio8`."""
        parameters = parameters_of(codec)
        if parameters is None or isinstance(parameters[0], OnRoots):
            return None
        return cls(codec, parameters, device)

    def encode(self, m: Tensor, v: Tensor) -> Codes:
        """Codes of both moments, unguarded; see `Codec.encode`."""
        codes = self._empty_codes(len(m))
        for moment, out, grid, mask in zip((m, v), codes, self._grids, (_M_MASK, _V_MASK), strict=True):
            bits = moment.contiguous().view(torch.int32)
            launch(nearest_kernel, len(m), self.interpreted, bits, out, grid, nearest=self._loops.nearest, MASK=mask)
        return codes

    def decode(self, codes: Codes) -> tuple[Tensor, Tensor]:
        """What codes decode to, without exact pairs; see `Codec.decode`."""
        m, v = (torch.empty(len(codes.m), dtype=torch.int32, device=self.device) for _ in range(2))
        for given, out, grid, mask in zip(codes, (m, v), self._grids, (_M_MASK, _V_MASK), strict=True):
            launch(
                level_kernel,
                len(given),
                self.interpreted,
                given.contiguous(),
                out,
                grid,
                level=self._loops.level,
                MASK=mask,
            )
        return m.view(torch.float32), v.view(torch.float32)

    def guarded(self, constants: GuardConstants[float], m: Tensor, v: Tensor) -> Escaped:
        """Codes where the closed form accepts, exact pairs elsewhere, all on the device of the moments."""
        m, v, codes = m.contiguous(), v.contiguous(), self._empty_codes(len(m))
        launch(
            guarded_kernel,
            len(m),
            self.interpreted,
            m,
            v,
            *codes,
            *self._grids,
            constants_array(constants, self.device),
            nearest=self._loops.nearest,
            level=self._loops.level,
            judge=make_judge(interpreted=self.interpreted),
            in_domain=domain(interpreted=self.interpreted),
            M_MASK=_M_MASK,
            V_MASK=_V_MASK,
            ESCAPE=self._escape,
        )
        escaped = self.codec.escaped(*codes)
        return Escaped(codes, torch.stack([m[escaped], v[escaped]], dim=1))

    def recovered(self, codes: Codes, escapes: Tensor) -> tuple[Tensor, Tensor]:
        """The recovered moments with the exact pairs in their places.

        Raises:
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        m, v = self.decode(codes)
        escaped = self.codec.escaped(*codes)
        _require_escapes(int(escaped.sum()), escapes)
        m[escaped], v[escaped] = escapes[:, 0], escapes[:, 1]
        return m, v

    def step(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        codes: Codes,
        escapes: Tensor,
        p: Tensor,
        g: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Recover and step coordinates of one op model: `p` in place, both moments after the step returned.

        Args:
            model: the op model.
            options: per-tensor choices, without amsgrad.
            scalars: the kernel's constants.
            codes: of the tensor.
            escapes: its exact pairs, float32, (escapes, 2).
            p: contiguous float32, (n,).
            g: contiguous float32, (n,).

        Raises:
            UnsupportedError: amsgrad, or an op model whose root is a platform's.
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        if options.amsgrad:
            raise UnsupportedError("amsgrad: the fused pass reads no third moment; recover the state, then step")
        block = block_of(self.interpreted)
        escaped = self.codec.escaped(*codes)
        counts = torch.nn.functional.pad(escaped, (0, -len(p) % block)).view(-1, block).sum(dim=1)
        _require_escapes(int(counts.sum()), escapes)
        m, v = torch.empty_like(p), torch.empty_like(p)
        launch(
            step_kernel,
            len(p),
            self.interpreted,
            *(given.contiguous() for given in codes),
            escapes.contiguous(),
            counts.cumsum(0) - counts,
            p,
            g,
            m,
            v,
            *self._grids,
            torch.tensor(list(scalars), dtype=torch.float32, device=self.device),
            level=self._loops.level,
            running=running_sum(interpreted=self.interpreted),
            step=make_step_at(model, options, interpreted=self.interpreted),
            M_MASK=_M_MASK,
            V_MASK=_V_MASK,
            ESCAPE=self._escape,
        )
        return m, v

    def _empty_codes(self, count: int) -> Codes:
        return Codes(*(torch.empty(count, dtype=self.codec.code_type, device=self.device) for _ in range(2)))


def block_of(interpreted: bool) -> int:  # noqa: FBT001 - what it depends on
    """Coordinates of a program."""
    return INTERPRETED_BLOCK if interpreted else BLOCK


def launch(kernel: Callable[..., Any], count: int, interpreted: bool, *arrays: Tensor, **constants: Any) -> None:  # noqa: FBT001, ANN401 - of the kernel
    """Run a kernel over `count` coordinates."""
    if count == 0:
        return
    program = launcher(kernel, interpreted=interpreted)
    if not interpreted and kernel is not step_kernel:
        program[lambda tuned: (triton.cdiv(count, tuned["BLOCK"]),)](*arrays, count, **constants, **OPTIONS)
        return
    block = block_of(interpreted)
    options = {} if interpreted else OPTIONS
    with np.errstate(all="ignore"):  # the interpreter's NumPy speaks of NaN, which is computed with
        program[(triton.cdiv(count, block),)](*arrays, count, **constants, BLOCK=block, **options)


def _require_escapes(count: int, escapes: Tensor) -> None:
    if count != len(escapes):
        raise FormatError(f"{count} codes stand for exact pairs, of which there are {len(escapes)}")
