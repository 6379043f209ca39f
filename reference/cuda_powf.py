"""CUDA's `powf(beta, step)`, the power inside Adam's bias corrections, as a sequence of rounded binary32 operations.

A GPU kernel holds `1 - powf(beta, step)`.  That `powf` is not correctly rounded, and where the power is close to one
the subtraction magnifies its error: an op model of the GPU needs its very bits, and they can be had on a CPU.

The method: `base = m * 2**e` with `m` in about `[sqrt(1/2), sqrt(2)]`; `log2(m)` from `q = 2*(m-1)/(m+1)` as a sum of
a high and a low part; their product with the exponent, again in two parts; `2**` of it by a polynomial.

Claimed: for `base` zero, one or a normal binary32 between them and `exponent` an integer from 1 to `2**24`, the bits
of the default `powf`, not that of `--use_fast_math` or `--ftz=true`, where the GPU's approximate reciprocal of one
number, `m + 1`, is the nearest binary32.  The PTX manual promises no more than one ulp, so either neighbour is
possible too: `reciprocal_ulps` of -1, 0 and 1 are all there is to try.  For the usual betas the three give the same
`1 - powf`, as the tests show; for an odd beta ask.  Trusted: NumPy's binary32, the fused multiply-add of
`NumpyBinary32`, and that the GPU's other operations round as IEEE 754 asks.

Source: the operations and the coefficients are those of `__nv_powf` in NVIDIA's libdevice.10.bc, as shipped in the
triton 3.9.0 wheel.  Nothing there forbids a compiler to contract `f - q` below into a fused multiply-add; the machine
code that NVRTC 12.9 and 13.5 make for sm_75, 80, 90, 100 and 120 does not.

Evidence: emulated, never run on a GPU.  Compared bit for bit with libdevice's own code compiled for a CPU, and that
with an interpreter of the machine code; the golden table in the tests comes from the former.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from guarded_moments.reference.arithmetic.numpy_binary32 import Array, NumpyBinary32
from guarded_moments.reference.errors import UnsupportedError

LARGEST_EXPONENT: Final = 2**24  #: the largest step that a binary32 counter reaches: adding one leaves it there

_FLOAT: Final = NumpyBinary32()
_fma: Final = _FLOAT.fma

_BITS_OF_ONE: Final = 0x3F800000
_BITS_OF_SMALLEST_NORMAL: Final = 0x00800000
_BITS_OF_SPLIT: Final = 0x3F3504F3  #: `sqrt(1/2)`: where `m` begins
_EXPONENT_FIELD: Final = -0x00800000  #: sign and exponent, as a mask of the bits

_TWO: Final = _FLOAT.constant(2.0)
_THREE: Final = _FLOAT.constant(3.0)
_ONE: Final = _FLOAT.constant(1.0)

#: `log2(e)` in two parts.
_LOG2_E_HIGH: Final = _FLOAT.constant(float.fromhex("0x1.715476p+0"))
_LOG2_E_LOW: Final = _FLOAT.constant(float.fromhex("0x1.4abc68p-26"))

#: `log2(m) = log2(e)*q + q * (c1*q**2 + c2*q**4 + c3*q**6 + c4*q**8)`, highest first; near `log2(e)/12`, `/80`, ...
_LOG2_COEFFICIENTS: Final = tuple(
    _FLOAT.constant(float.fromhex(digits))
    for digits in ("0x1.5865c8p-11", "0x1.a5cfb6p-9", "0x1.2776e6p-6", "0x1.ec709ep-4")
)

#: `2**x` on `[-1/2, 1/2]`, highest first; near `ln(2)**k / k!`.
_EXP2_COEFFICIENTS: Final = tuple(
    _FLOAT.constant(float.fromhex(digits))
    for digits in (
        "0x1.3f971cp-13",
        "0x1.5f0bdap-10",
        "0x1.3b30acp-7",
        "0x1.c6af76p-5",
        "0x1.ebfbd8p-3",
        "0x1.62e430p-1",
        "0x1.000000p+0",
    )
)

_UNDERFLOW: Final = np.float32(-152)  #: a power below `2**-152` is zero without further computation
_FIRST_SCALE: Final = -123  #: `2**n` is applied as `2**-123 * 2**(n+123)`, lest `2**n` itself underflow


def cuda_powf(base: float, exponent: float, reciprocal_ulps: int = 0) -> float:
    """CUDA's `powf(base, exponent)` for `base` rounded to binary32, as a kernel rounds Adam's `beta`.

    Args:
        base: zero, or normal and at most one.
        exponent: an integer from 1 to `LARGEST_EXPONENT`.
        reciprocal_ulps: how far the GPU's reciprocal lies above the nearest binary32.

    Raises:
        UnsupportedError: outside that domain.
    """
    if not exponent <= LARGEST_EXPONENT:  # before binary32 rounds the exponent into the domain
        raise UnsupportedError(_exponent_refused(exponent))
    return float(cuda_powf_array(_FLOAT.constant(base), _FLOAT.constant(exponent), reciprocal_ulps))


def cuda_powf_array(base: Array, exponent: Array, reciprocal_ulps: int = 0) -> Array:
    """The same for float32 arrays, which broadcast.

    Raises:
        UnsupportedError: some element is outside the domain.
    """
    _refuse_outside_domain(base, exponent)
    zero = np.equal(base, 0)
    log_high, log_low = _log2(np.where(zero, _ONE, base), reciprocal_ulps)
    high = _FLOAT.mul(log_high, exponent)
    low = _fma(log_low, exponent, _fma(log_high, exponent, -high))
    power = _exp2(np.maximum(high, _UNDERFLOW), low)
    return np.where(zero | np.less(high, _UNDERFLOW), np.float32(0), power)


def _refuse_outside_domain(base: Array, exponent: Array) -> None:
    bits = np.asarray(base).view(np.int32)  # in the order of the values; negative for a negative sign, large for NaN
    outside = (bits != 0) & ((bits < _BITS_OF_SMALLEST_NORMAL) | (bits > _BITS_OF_ONE))
    if outside.any():
        first = float(np.asarray(base)[outside].flat[0])
        raise UnsupportedError(f"powf with base {first!r}: expected zero, or a normal binary32 up to one")
    outside = ~np.asarray((exponent >= 1) & (exponent <= LARGEST_EXPONENT) & (np.rint(exponent) == exponent))
    if outside.any():
        raise UnsupportedError(_exponent_refused(float(np.asarray(exponent)[outside].flat[0])))


def _exponent_refused(exponent: float) -> str:
    return f"powf with exponent {exponent!r}: expected an integer from 1 to {LARGEST_EXPONENT}"


def _log2(x: Array, reciprocal_ulps: int) -> tuple[Array, Array]:
    """`log2(x)` of a positive normal `x`, as a binary32 and a correction to it."""
    bits = np.asarray(x).view(np.int32)
    exponent_bits = (bits - np.int32(_BITS_OF_SPLIT)) & np.int32(_EXPONENT_FIELD)
    m = np.asarray(bits - exponent_bits).view(np.float32)
    e = np.asarray((exponent_bits >> 23).astype(np.float32))

    f = _FLOAT.sub(m, _ONE)
    nearest = _FLOAT.div(_ONE, _FLOAT.add(m, _ONE))
    r = np.asarray(nearest.view(np.int32) + np.int32(reciprocal_ulps)).view(np.float32)  # MUFU.RCP
    q = _FLOAT.mul(_FLOAT.mul(_TWO, f), r)
    remainder = _fma(-q, f, _FLOAT.mul(_TWO, _FLOAT.sub(f, q)))  # 2*f - q*(m+1): what `q` leaves of the division
    q_low = _FLOAT.mul(r, remainder)

    square = _FLOAT.mul(q, q)
    series = _FLOAT.mul(_horner(_LOG2_COEFFICIENTS, square), square)

    high = _fma(q, _LOG2_E_HIGH, e)
    low = _fma(q, _LOG2_E_HIGH, _FLOAT.sub(e, high))  # what rounding `high` lost
    low = _fma(q_low, _LOG2_E_HIGH, low)
    low = _fma(q, _LOG2_E_LOW, low)
    low = _fma(_FLOAT.mul(_THREE, series), q_low, low)  # the derivative of `q*series`, nearly, times `q_low`
    low = _fma(series, q, low)

    total = _FLOAT.add(high, low)
    return total, _FLOAT.sub(low, _FLOAT.sub(total, high))


def _exp2(high: Array, low: Array) -> Array:
    """`2**(high + low)` for `high` from `_UNDERFLOW` to zero; subnormal results are rounded once."""
    n = np.rint(high)
    power = _horner(_EXP2_COEFFICIENTS, _FLOAT.add(_FLOAT.sub(high, n), low))
    power = _FLOAT.mul(power, np.asarray(np.ldexp(_ONE, _FIRST_SCALE)))
    return _FLOAT.mul(power, np.asarray(np.ldexp(_ONE, n.astype(np.int32) - _FIRST_SCALE)))


def _horner(coefficients: tuple[Array, ...], x: Array) -> Array:
    """The polynomial with these coefficients, highest first, by fused multiply-adds."""
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = _fma(value, x, coefficient)
    return value
