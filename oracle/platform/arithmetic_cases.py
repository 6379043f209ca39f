"""Operands on which a binary32 operation goes wrong first, by the million.

Claimed: nothing; a poor set of cases makes weak evidence, never a wrong verdict.  The tests show that each kind catches
the fault that it was built for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Generator = np.random.Generator
Case = tuple[Array, ...]

#: How many operands each operation takes.
OPERANDS: Mapping[str, int] = MappingProxyType({"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3})

_SIGN = 0x80000000
_ONE = 0x3F800000
_INFINITY = 0x7F800000
_SMALLEST_NORMAL = 0x00800000
_LARGEST = 0x7F7FFFFF
_EDGES = (0, 1, 2, 3, _SMALLEST_NORMAL - 1, _SMALLEST_NORMAL, _SMALLEST_NORMAL + 1, _ONE - 1, _ONE, _ONE + 1)
#: Zeros are drawn more often: only of two of one sign is the sum minus zero.
_SPECIAL = np.array(
    [0, 0, 0, 0, *_EDGES, 0x3F000000, 0x40000000, _LARGEST - 1, _LARGEST, _INFINITY, 0x7FC00000], np.uint32
)


def cases(operation: str, count: int, rng: Generator) -> Case:
    """`count` tuples of operands, an equal part of each kind, one kind after the other."""
    kinds = (*_COMMON, *_OWN[operation])
    each = -(-count // len(kinds))
    with np.errstate(all="ignore"):
        parts = [kind(OPERANDS[operation], each, rng) for kind in kinds]
    return tuple(np.hstack(column)[:count] for column in zip(*parts, strict=True))


def _float(bits: npt.NDArray[np.integer]) -> Array:
    return np.asarray(bits).astype(np.uint32).view(np.float32)


def _bits(values: Array) -> npt.NDArray[np.int64]:
    return values.view(np.uint32).astype(np.int64)


def _signs(count: int, rng: Generator) -> npt.NDArray[np.int64]:
    return rng.integers(2, size=count) * _SIGN


def _significands(count: int, rng: Generator) -> Array:
    """In [1, 2), all bits random, of either sign."""
    return _float(rng.integers(_ONE, _ONE + _SMALLEST_NORMAL, size=count) | _signs(count, rng))


def _scaled(values: Array, exponents: npt.NDArray[np.integer]) -> Array:
    """Times a power of two; rounded where that is subnormal, infinite where it is too large."""
    return np.ldexp(values, exponents.astype(np.int32)).astype(np.float32)


def _any_bits(operands: int, count: int, rng: Generator) -> Case:
    return tuple(_float(rng.integers(2**32, size=count)) for _ in range(operands))


def _specials(operands: int, count: int, rng: Generator) -> Case:
    return tuple(_float(rng.choice(_SPECIAL, size=count) | _signs(count, rng)) for _ in range(operands))


def _special_with_any(operands: int, count: int, rng: Generator) -> Case:
    kinds = (_specials(operands, count, rng), _any_bits(operands, count, rng))
    return tuple(np.where(rng.integers(2, size=count) == 0, *pair) for pair in zip(*kinds, strict=True))


def _subnormals(operands: int, count: int, rng: Generator) -> Case:
    small = tuple(_float(rng.integers(2 * _SMALLEST_NORMAL, size=count) | _signs(count, rng)) for _ in range(operands))
    return (small[0], *(_scaled(value, rng.integers(0, 130, size=count)) for value in small[1:]))


def _as_in_training(operands: int, count: int, rng: Generator) -> Case:
    scale = 10.0 ** rng.uniform(-14, 2, size=count)
    return tuple((rng.standard_normal(count) * scale).astype(np.float32) for _ in range(operands))


def _close_exponents(operands: int, count: int, rng: Generator) -> Case:
    """Every alignment of two significands matters here, and so do ties."""
    shared = rng.integers(-60, 60, size=count)
    return tuple(
        _scaled(_significands(count, rng), shared + rng.integers(-27, 28, size=count)) for _ in range(operands)
    )


def _few_bits(operands: int, count: int, rng: Generator) -> Case:
    """Short significands: exact results, and exact ties, which random ones hardly ever give."""
    return tuple(
        _scaled(rng.integers(-(2**13), 2**13, size=count).astype(np.float32), rng.integers(-30, 31, size=count))
        for _ in range(operands)
    )


def _cancelling(_operands: int, count: int, rng: Generator) -> Case:
    """Sums: nearly equal magnitudes of opposite or equal sign."""
    a = _any_bits(1, count, rng)[0]
    return a, _float(_bits(a) + rng.integers(-3, 4, size=count) ^ _signs(count, rng))


def _half_a_unit(_operands: int, count: int, rng: Generator) -> Case:
    """Sums: the smaller operand is half a unit of the larger, give or take its own last place."""
    a = _float(rng.integers(30 << 23, _INFINITY, size=count))
    half = _float((_bits(a) >> 23 << 23) - (24 << 23))
    b = _float(_bits(half) + rng.integers(-1, 2, size=count) | _signs(count, rng))
    return a, b


def _products_at_the_edge(_operands: int, count: int, rng: Generator) -> Case:
    """Products whose exponent is where subnormals begin or end, or where infinity begins."""
    exponent = np.where(
        rng.integers(2, size=count) == 0, rng.integers(-153, -123, size=count), rng.integers(126, 130, size=count)
    )
    first = rng.integers(-60, 61, size=count)
    first = np.clip(first, exponent - 126, exponent + 126)
    return _scaled(_significands(count, rng), first), _scaled(_significands(count, rng), exponent - first)


def _products_beside_a_tie(_operands: int, count: int, rng: Generator) -> Case:
    """Products: `b` is the quotient of a middle between two neighbours by `a`."""
    a, middle = _significands(count, rng), _middles(count, rng)
    return a, (middle / a).astype(np.float32)


def _quotients_at_the_edge(operands: int, count: int, rng: Generator) -> Case:
    a, b = _products_at_the_edge(operands, count, rng)
    return a, (1 / b).astype(np.float32)


def _quotients_beside_a_tie(_operands: int, count: int, rng: Generator) -> Case:
    """Quotients: `a` is the product of a middle between two neighbours and `b`; no quotient is a tie itself."""
    b, middle = _significands(count, rng), _middles(count, rng)
    return (middle * b).astype(np.float32), b


def _quotients_of_neighbours(_operands: int, count: int, rng: Generator) -> Case:
    b = _significands(count, rng)
    return _float(_bits(b) + rng.integers(-4, 5, size=count)), b


def _middles(count: int, rng: Generator) -> npt.NDArray[np.float64]:
    """Half way between two binary32 neighbours in [1, 2)."""
    return _significands(count, rng).astype(np.float64) * 1.0 + 2.0**-24


def _fma_cancelling(_operands: int, count: int, rng: Generator) -> Case:
    """What the product's own rounding lost, down to subnormals."""
    a, b = _close_exponents(2, count, rng)
    return a, b, _float(_bits((-(a * b)).astype(np.float32)) + rng.integers(-2, 3, size=count))


def _fma_just_below_half(_operands: int, count: int, rng: Generator) -> Case:
    """A product `(1+d)(1-d)` of half a unit of the addend: binary64 takes the sum for a tie."""
    unit = rng.integers(-60, 60, size=count)
    c = _float(_bits(_significands(count, rng)) | 1)
    d = np.ldexp(np.float32(1), rng.integers(-23, -14, size=count).astype(np.int32))
    a = _float(_bits((1 + d).astype(np.float32)) | _signs(count, rng))
    return _scaled(a, unit), ((1 - d) * np.float32(0.5)).astype(np.float32), _scaled(c, unit + 23)


def _fma_just_beside_half(_operands: int, count: int, rng: Generator) -> Case:
    """A product of 25 bits, a tie by itself, and an addend too small for binary64 to see beside it."""
    a = (rng.integers(2**11, 2800, size=count) | 1).astype(np.float32)
    b = (rng.integers(2**13, 11000, size=count) | 1).astype(np.float32)
    return a, b, _scaled(_significands(count, rng), rng.integers(-100, -35, size=count))


def _fma_subnormal(_operands: int, count: int, rng: Generator) -> Case:
    """Just below half the one unit that all subnormals share, beside an odd subnormal."""
    c = _float(rng.integers(2**8, _SMALLEST_NORMAL, size=count) | 1 | _signs(count, rng))
    d = np.ldexp(np.float32(1), rng.integers(-23, -14, size=count).astype(np.int32))
    a = _float(_bits((1 + d).astype(np.float32)) | _signs(count, rng))
    return _scaled(a, np.full(count, -75)), _scaled((1 - d).astype(np.float32), np.full(count, -75)), c


def _fma_overflow(_operands: int, count: int, rng: Generator) -> Case:
    """The largest finite value and just under, or just over, half its unit."""
    d = np.ldexp(np.float32(1), rng.integers(-23, -14, size=count).astype(np.int32))
    a = _scaled((1 + d).astype(np.float32), np.full(count, 103))
    b = np.where(rng.integers(2, size=count) == 0, 1 - d, np.float32(1)).astype(np.float32)
    return a, b, np.full(count, _float(np.array(_LARGEST)))


_COMMON = (_any_bits, _specials, _special_with_any, _subnormals, _as_in_training, _close_exponents, _few_bits)
_SUMS = (_cancelling, _half_a_unit)
_OWN: Mapping[str, tuple[Callable[[int, int, Generator], Case], ...]] = MappingProxyType(
    {
        "add": _SUMS,
        "sub": _SUMS,
        "mul": (_products_at_the_edge, _products_beside_a_tie),
        "div": (_quotients_at_the_edge, _quotients_beside_a_tie, _quotients_of_neighbours),
        "fma": (_fma_cancelling, _fma_just_below_half, _fma_just_beside_half, _fma_subnormal, _fma_overflow),
    }
)
