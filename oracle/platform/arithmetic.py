"""Our binary32 operations against an independent implementation: MPFR, through gmpy2's `ieee(32)` context.

MPFR computes with integers and rounds by its own code; the context gives it binary32's precision, exponents and
subnormals.  No floating-point unit and no line of this package is shared.

Claimed: a comparison finds every bit that differs, those of NaN apart.  Trusted: gmpy2 and MPFR, and that a binary32
value passes through a Python float unchanged.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from guarded_moments.oracle.platform.arithmetic_cases import OPERANDS, Array
from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary32
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import hex_of

_SPELLED_OUT = 3  #: mismatches of a comparison that are shown in hexadecimal

#: An operation on float32 arrays of one shape.
Operation = Callable[..., Array]


@dataclass(frozen=True)
class Comparison:
    """What some cases of one operation showed."""

    operation: str
    cases: int
    mismatches: Mapping[str, int]  #: by arithmetic
    examples: tuple[str, ...]


def ours(operation: str) -> Mapping[str, Operation]:
    """The operation in each binary32 arithmetic of the reference."""
    return MappingProxyType(
        {
            "NumpyBinary32": getattr(NumpyBinary32(), operation),
            "TorchBinary32": _on_tensors(operation),
            "CompiledBinary32": _compiled(operation),
        }
    )


def compare(operation: str, operands: tuple[Array, ...], arithmetics: Mapping[str, Operation]) -> Comparison:
    """Compute each case in every arithmetic and in MPFR, and count where the bits differ.

    Args:
        operation: `add`, `sub`, `mul`, `div` or `fma`.
        operands: float32 arrays of one shape, one an operand.
        arithmetics: what to check, by name.

    Raises:
        UnsupportedError: gmpy2 is not installed.
    """
    expected = by_mpfr(operation)(*operands)
    mismatches, examples = {}, []
    for name, function in arithmetics.items():
        got = function(*operands)
        wrong = (got.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(got) & np.isnan(expected))
        mismatches[name] = int(wrong.sum())
        for i in wrong.nonzero()[0][:_SPELLED_OUT]:
            arguments = ", ".join(hex_of(float(operand[i])) for operand in operands)
            examples.append(
                f"{name}: {operation}({arguments}) = {hex_of(float(got[i]))}, by MPFR {hex_of(float(expected[i]))}"
            )
    return Comparison(operation, expected.size, mismatches, tuple(examples[:_SPELLED_OUT]))


def gmpy2_version() -> str:
    """In words, with the library behind it.

    Raises:
        UnsupportedError: gmpy2 is not installed.
    """
    gmpy2 = _gmpy2()
    return f"gmpy2 {gmpy2.version()} ieee(32), {gmpy2.mpfr_version()}"


@cache
def by_mpfr(operation: str) -> Operation:
    """The operation, each element by MPFR.

    Raises:
        UnsupportedError: gmpy2 is not installed.
    """
    function = getattr(_gmpy2().ieee(32), operation)

    def elementwise(*operands: Array) -> Array:
        with np.errstate(invalid="ignore"):  # a signalling NaN is quieted on its way to binary64
            numbers = [operand.astype(np.float64).tolist() for operand in operands]
        exact = np.fromiter(map(function, *numbers), np.float64, operands[0].size)
        result = exact.astype(np.float32)
        if not np.array_equal(result.astype(np.float64), exact, equal_nan=True):
            raise AssertionError(operation)  # the context rounds to binary32: it was not used
        return result

    return elementwise


def _gmpy2() -> Any:  # noqa: ANN401 - it comes without annotations
    try:
        return importlib.import_module("gmpy2")
    except ModuleNotFoundError:
        msg = "gmpy2 is not installed, and it is what the arithmetic is compared with: pip install gmpy2"
        raise UnsupportedError(msg) from None


def _on_tensors(operation: str) -> Operation:
    function = getattr(TorchBinary32(), operation)

    def on_arrays(*operands: Array) -> Array:
        result: Array = function(*(torch.from_numpy(operand) for operand in operands)).numpy()
        return result

    return on_arrays


@cache
def _compiled(operation: str) -> Operation:
    from guarded_moments.reference.arithmetic.compiled_binary32 import (  # noqa: PLC0415 - numba takes half a second
        CompiledBinary32,
    )
    from guarded_moments.reference.arithmetic.compiled_operations import jit  # noqa: PLC0415 - as above

    function = getattr(CompiledBinary32, operation)
    if OPERANDS[operation] == 2:  # noqa: PLR2004 - a loop of its own for each number of operands

        def loop(out: Any, a: Any, b: Any) -> None:  # noqa: ANN401 - arrays, typed by numba
            for i in range(out.size):
                out[i] = function(a[i], b[i])
    else:

        def loop(out: Any, a: Any, b: Any, c: Any) -> None:  # type: ignore[misc]  # noqa: ANN401 - as above
            for i in range(out.size):
                out[i] = function(a[i], b[i], c[i])

    compiled = jit(loop)

    def on_arrays(*operands: Array) -> Array:
        out = np.empty_like(operands[0])
        compiled(out, *operands)
        return out

    return on_arrays
