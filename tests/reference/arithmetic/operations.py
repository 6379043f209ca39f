"""Operands on which a binary32 operation goes wrong first, and the check of an operation against exact arithmetic."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from tests.reference.arithmetic import exact_binary32
from tests.strategies import NAN, SPECIAL_BITS, Array, bits_of, floats_of, wild

from guarded_moments.reference.floats import hex_of

OPERAND_COUNTS = MappingProxyType({"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "sqrt": 1})
OPERATIONS = tuple(OPERAND_COUNTS)

#: An operation on float32 arrays, whatever it runs on.
Operation = Callable[..., Array]

_LARGEST = np.float32(np.finfo(np.float32).max)


def operands(name: str, count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """About `count` tuples of operands: every combination of two specials, wild values, and the adversarial ones."""
    number = OPERAND_COUNTS[name]
    special = floats_of(SPECIAL_BITS)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[special] * min(number, 2))])
    if number == 3:  # an addend for each pair
        grid = np.vstack((grid, rng.choice(special, size=grid.shape[1])))
    wild_ones = np.stack([wild(count, rng) for _ in range(number)])
    parts = [grid, wild_ones, np.stack(_ADVERSARIAL[name](max(count // 4, 64), rng))]
    return tuple(np.hstack(parts))


def naive_fma(a: Array, b: Array, c: Array) -> Array:
    """What rounds twice: the sum in binary64, then to binary32."""
    with np.errstate(all="ignore"):
        return (a.astype(np.float64) * b + c).astype(np.float32)


def first_difference(name: str, operation: Operation, values: tuple[Array, ...]) -> str | None:
    """The first tuple of operands on which `operation` is not the exact result, rounded once; None if it always is.

    NaN is compared as NaN, whatever its payload.
    """
    expected_of = exact_binary32.OPERATIONS[name]
    result = operation(*values)
    assert result.dtype == np.float32
    assert result.shape == values[0].shape
    bits = np.where(np.isnan(result), np.uint32(NAN), bits_of(result))
    for i, got in enumerate(bits.tolist()):
        arguments = [float(value[i]) for value in values]
        expected = expected_of(*arguments)
        if got != expected:
            shown = ", ".join(hex_of(argument) for argument in arguments)
            return f"{name}({shown}) = {got:08x}, rounded once it is {expected:08x} (element {i})"
    return None


def differing(a: Array, b: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where the bits differ, of which at least one is no NaN."""
    different: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    different = (bits_of(a) != bits_of(b)) & ~(np.isnan(a) & np.isnan(b))
    return different


def _signs(count: int, rng: np.random.Generator) -> Array:
    return rng.choice(np.array([-1, 1], np.float32), size=count)


def _powers(low: int, high: int, count: int, rng: np.random.Generator) -> Array:
    """Powers of two, `2**low` to `2**(high - 1)`."""
    return np.ldexp(np.float32(1), rng.integers(low, high, size=count)).astype(np.float32)


def _significands(count: int, rng: np.random.Generator) -> Array:
    """In [1, 2), all 24 bits random."""
    return floats_of(rng.integers(0x3F800000, 0x40000000, size=count, dtype=np.uint32))


def just_below_half(count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """fma: an odd addend and a product just short of half its unit, so that the exact sum rounds to the addend.

    The product is `2**k * (1 + d)(1 - d)`, nearer to half a unit than binary64 can tell beside the addend; rounded
    twice the sum is a tie, and goes to the even neighbour.
    """
    unit = _powers(-60, 60, count, rng)
    c = np.ldexp(_significands(count, rng), 23)
    c = floats_of(bits_of(c) | 1) * unit * _signs(count, rng)
    d = _powers(-23, -14, count, rng)
    return (1 + d) * unit * _signs(count, rng), (1 - d) * np.float32(0.5), c


def just_beside_half(count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """fma: a product of 25 bits, half way between two binary32, and an addend too small for binary64 to see."""
    a = (rng.integers(2**11, 2800, size=count) | 1).astype(np.float32)
    b = (rng.integers(2**13, 11000, size=count) | 1).astype(np.float32)  # a * b is odd, and below 2**25
    return a * _signs(count, rng), b, _powers(-80, -35, count, rng) * _signs(count, rng)


def subnormal_just_below_half(count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """fma: as `just_below_half`, among subnormals, whose unit is `2**-149` at every magnitude."""
    c = floats_of(rng.integers(2**8, 2**22, size=count, dtype=np.uint32) | 1) * _signs(count, rng)
    d, half = np.float32(2.0**-23), np.float32(2.0**-75)
    return (1 + d) * half * _signs(count, rng), np.full(count, (1 - d) * half), c


def just_below_overflow(count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """fma: the largest finite value and just under half its unit: finite, but infinite when rounded twice."""
    sign, d = _signs(count, rng), _powers(-23, -14, count, rng)
    return (1 + d) * np.float32(2.0**103) * sign, 1 - d, _LARGEST * sign


#: Constructed so that two roundings are wrong: always in the first, third and fourth, in the second half the time.
DOUBLE_ROUNDING: Mapping[str, Callable[[int, np.random.Generator], tuple[Array, Array, Array]]] = MappingProxyType(
    {
        "just below half": just_below_half,
        "just beside half": just_beside_half,
        "subnormal": subnormal_just_below_half,
        "overflow": just_below_overflow,
    }
)


def _fma_adversarial(count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    built = [make(count, rng) for make in DOUBLE_ROUNDING.values()]
    a, b = wild(count, rng), wild(count, rng)
    with np.errstate(all="ignore"):
        built.append((a, b, -(a * b)))  # the product's own rounding error, down to subnormals
        built.append((a, b, np.nextafter(-(a * b), np.float32(0))))
    return tuple(np.hstack(column) for column in zip(*built, strict=True))


def _sum_adversarial(count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    a, k = wild(count, rng), rng.integers(-30, 30, size=count)
    with np.errstate(all="ignore"):
        near = floats_of(bits_of(a) + rng.integers(-2, 3, size=count).astype(np.uint32))  # cancels, or overflows
        half = np.ldexp(a, k).astype(np.float32)
    return np.hstack((a, a, a)), np.hstack((near, -near, half))


def _product_adversarial(count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    a, b = _significands(2 * count, rng) * _signs(2 * count, rng), _significands(2 * count, rng)
    tiny, huge = rng.integers(-152, -124, size=count), rng.integers(125, 130, size=count)
    exponent = np.hstack((tiny, huge))
    return np.ldexp(a, exponent // 2).astype(np.float32), np.ldexp(b, exponent - exponent // 2).astype(np.float32)


def _quotient_adversarial(count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    a, b = _product_adversarial(count, rng)
    with np.errstate(all="ignore"):
        return a, (1 / b).astype(np.float32)


def _root_adversarial(count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    root = _significands(count, rng) * _powers(-70, 60, count, rng)
    near = bits_of(root * root) + rng.integers(-2, 3, size=count).astype(np.uint32)
    return (np.hstack((floats_of(near), -np.abs(wild(count // 8, rng)))),)


_ADVERSARIAL: Mapping[str, Callable[[int, np.random.Generator], tuple[Array, ...]]] = MappingProxyType(
    {
        "add": _sum_adversarial,
        "sub": _sum_adversarial,
        "mul": _product_adversarial,
        "div": _quotient_adversarial,
        "fma": _fma_adversarial,
        "sqrt": _root_adversarial,
    }
)


def tensors(values: tuple[Array, ...]) -> list[torch.Tensor]:
    """The arrays as tensors."""
    return [torch.from_numpy(np.ascontiguousarray(value)) for value in values]
