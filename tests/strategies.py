"""Wild binary32 values: what an optimizer's state may hold, however unlikely.

`wild` fills arrays, for comparisons of millions of values; `oracle.conformance.strategies` has the same idea as single
values, for properties that hypothesis should shrink.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st
from torch import Tensor

Array = npt.NDArray[np.float32]

SIGN = 0x80000000
INFINITY = 0x7F800000
NAN = 0x7FC00000
SMALLEST_NORMAL = 0x00800000
LARGEST_FINITE = 0x7F7FFFFF
ONE = 0x3F800000

#: Where formats end and rounding changes its rule; both signs of each.
SPECIAL_BITS = tuple(
    sign | bits
    for bits in (
        0x00000000,
        0x00000001,
        0x00000002,
        SMALLEST_NORMAL - 1,
        SMALLEST_NORMAL,
        SMALLEST_NORMAL + 1,
        ONE - 1,
        ONE,
        ONE + 1,
        LARGEST_FINITE - 1,
        LARGEST_FINITE,
        INFINITY,
        NAN,
    )
    for sign in (0, SIGN)
)


def floats_of(bits: npt.ArrayLike) -> Array:
    """The binary32 values with these bits."""
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def bits_of(values: Array) -> npt.NDArray[np.uint32]:
    """The bits of binary32 values."""
    return np.asarray(values, dtype=np.float32).view(np.uint32)


def wild(count: int, rng: np.random.Generator) -> Array:
    """`count` binary32 values, each of one of five kinds.

    Any 32 bits (signalling NaN included); subnormals; specials (`SPECIAL_BITS`); values within a few units in the
    last place of a power of two near 1; and normally distributed values at a random scale from 1e-12 to 1e2.
    """
    any_bits = floats_of(rng.integers(2**32, size=count, dtype=np.uint32))
    signs = rng.integers(2, size=count, dtype=np.uint32) << np.uint32(31)
    subnormal = floats_of(rng.integers(1, SMALLEST_NORMAL, size=count, dtype=np.uint32) | signs)
    special = floats_of(rng.choice(np.array(SPECIAL_BITS, dtype=np.uint32), size=count))
    powers = ONE + (rng.integers(-3, 4, size=count) << 23) + rng.integers(-3, 4, size=count)
    near_unit = floats_of(powers.astype(np.uint32) | signs)
    scaled = (rng.standard_normal(count) * 10.0 ** rng.uniform(-12, 2, size=count)).astype(np.float32)
    kind = rng.choice(5, size=count, p=(0.2, 0.1, 0.1, 0.15, 0.45))
    return np.choose(kind, (any_bits, subnormal, special, near_unit, scaled))


def wild_tensor(count: int, rng: np.random.Generator) -> Tensor:
    """`wild`, as a float32 tensor."""
    return torch.from_numpy(wild(count, rng))


def wild_states(count: int, rng: np.random.Generator) -> Tensor:
    """Parameters, gradients, moments and largest second moments: float32, shape (5, count), rows `p g m v vmax`.

    Each coordinate is one of: five independent wild values; a state as training leaves it (the gradient as large as
    `m`, `v` near its square), where each rounding shows; five values that are zeros of both signs, subnormals, ones
    and a few NaN, where the sign of a zero and the handling of NaN show.
    """
    independent = np.stack([wild(count, rng) for _ in range(5)])
    scale = 10.0 ** rng.uniform(-14, 3, size=count)
    p, g, m = rng.standard_normal((3, count)) * [np.ones(count), scale, scale]
    p *= rng.choice((0.0, 1e-3, 1.0), size=count)
    v, v_max = np.square(rng.standard_normal((2, count)) * scale)
    trained = np.stack((p, g, m, v, v_max)).astype(np.float32)
    degenerate = rng.choice(floats_of((0, 0, SIGN, SIGN, 1, 1 | SIGN, ONE, ONE | SIGN, NAN)), size=(5, count))
    kind = rng.choice(3, size=count, p=(0.4, 0.4, 0.2))
    states = np.choose(kind, (independent, trained, degenerate))
    states[3:] = np.where(rng.random(count) < 0.8, np.abs(states[3:]), states[3:])
    return torch.from_numpy(states)


def zeros_and_ones(count: int, rng: np.random.Generator) -> Tensor:
    """States as `wild_states` has them, of zeros and ones of both signs: where which zero it is shows often."""
    return torch.from_numpy(rng.choice(floats_of((0, SIGN, ONE, ONE | SIGN)), size=(5, count)))


def fractions(largest_exponent: int) -> st.SearchStrategy[Fraction]:
    """Rationals of both signs, with magnitudes from `2**-largest_exponent` to `2**largest_exponent`, and zero."""
    exponents = st.integers(-largest_exponent, largest_exponent)
    numbers = st.fractions(-2, 2, max_denominator=2**60)
    return st.builds(lambda number, exponent: number * Fraction(2) ** exponent, numbers, exponents)
