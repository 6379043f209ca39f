"""The kernels as such: what each program loads, computes and stores; and how they are launched.

What is computed is given: loops of a codec (`triton_loops`), formulas of the guard and of the step (`triton_formulas`).

Claimed: nothing by itself; see `triton_codecs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from guarded_moments.reference.arithmetic.triton_operations import OPTIONS, jit

#: Coordinates of a program of `step_kernel` on a GPU, and of any in the interpreter, whose price is by program.
BLOCK, INTERPRETED_BLOCK = 1024, 1 << 15
#: What is tried for the others, once a process: coordinates of a program, and its warps.
TUNED = tuple((block, warps) for block in (256, 512, 1024, 2048) for warps in (2, 4, 8))


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
