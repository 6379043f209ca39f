"""The encoders on every finite binary32 number: all of them with `--oracle`, stretches around every change otherwise.

The first number of each code is found here in exact arithmetic, apart from the package's tables and formulas; between
two such numbers the code must not change.  A first moment is tried with both signs: 2**32 inputs, less infinities and
NaN, which are never encoded (the guard's domain leaves them out).
"""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import ceil

import mpmath
import numpy as np
import pytest
import torch
from tests.reference.codecs.twins import PRECISION, dynamic_values, root
from tests.strategies import LARGEST_FINITE

from guarded_moments.reference.codecs import BFloat16, Blockwise8, Codec, FloatGrid, Joint, Lin8, Log8, LogGrid, Ratio8
from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS
from guarded_moments.reference.floats import bits_of

Bits = np.ndarray[tuple[int], np.dtype[np.int64]]

CODECS: dict[str, Codec] = {
    "log8": Log8(LogGrid.spanning(-23.6, -6.75, M_LEVELS), LogGrid.spanning(-47.04, -13.1, V_LEVELS)),
    "lin8": Lin8(FloatGrid.spanning(-23.6, -6.75, M_LEVELS), FloatGrid.spanning(-47.04, -13.1, V_LEVELS)),
    "bf16": BFloat16(),
    "blockwise8": Blockwise8(torch.ones(1 << 13), torch.ones(1 << 13)),  # a scale of one: the map itself
    "ratio8": Ratio8(LogGrid.spanning(-47.04, -13.1, V_LEVELS), torch.tensor([0.0264892578125])),
}
STRETCH = 1 << 16
BESIDE_CODE = 131  #: the second moment beside which first moments are tried, where it matters
BEFORE = 8  #: numbers on either side of a change that are tried without `--oracle`


def first_bits(codec: Codec, moment: int) -> tuple[Bits, Bits]:
    """Bits of the first positive number of each code, and the codes, in order; the first entry is zero's."""
    if isinstance(codec, BFloat16):
        codes = np.arange(0x7F80 + 1, dtype=np.int64)
        first = np.maximum((codes << 16) - 0x8000 + (codes & 1), 0)  # a tie goes to the even one
        return first, codes
    if isinstance(codec, Blockwise8):
        values = [Fraction(value) for value in dynamic_values(signed=moment == 0)]
        zero = values.index(Fraction(0))
        means = [(a + b) / 2 for a, b in pairwise(values[zero:])]
        return np.array([0, *(at_least(mean) for mean in means)]), np.arange(zero, len(values))
    if isinstance(codec, Ratio8) and moment == 0:  # beside the second moment that every first one is tried with
        assert isinstance(codec.v_grid, LogGrid)
        unit = Fraction(float(codec.steps)) * Fraction(root(BESIDE_CODE, codec.v_grid))
        halves = [(Fraction(i) - Fraction(1, 2)) * unit for i in range(1, 128)]
        # A tie goes to the even multiple, the lower where the upper is odd.
        changes = [at_least(x) + (i % 2 and value_of(at_least(x)) == x) for i, x in enumerate(halves, 1)]
        return np.array([0, *changes]), np.arange(128)
    assert isinstance(codec, Log8 | Lin8 | Ratio8)
    grid = codec.m_grid if moment == 0 and not isinstance(codec, Ratio8) else codec.v_grid
    found = [0, 1]  # zero, and everything else up to the first change
    for i in range(1, grid.levels):
        if isinstance(grid, FloatGrid):
            found.append(grid.base + ceil((Fraction(i) - Fraction(1, 2)) * grid.step))
        else:
            assert isinstance(grid, LogGrid)
            with mpmath.workprec(PRECISION):
                mean = mpmath.mpf(2) ** mpmath.mpf(grid.exponent(i - 0.5))
                found.append(at_least(Fraction(int(mpmath.floor(mpmath.ldexp(mean, 200))), 1 << 200)))
    return np.array(found), np.arange(grid.levels + 1)


def at_least(exact: Fraction) -> int:
    """Bits of the least binary32 that is at least a positive number."""
    near = bits_of(float(exact))
    return next(bits for bits in range(near - 2, near + 3) if value_of(bits) >= exact)


def value_of(bits: int) -> Fraction:
    return Fraction(float(np.uint32(bits).view(np.float32)))


def wrong(codec: Codec, begin: int, end: int, firsts: list[tuple[Bits, Bits]], *, negative: bool) -> int | None:
    """Bits of the first number in a stretch that gets another code than it must."""
    bits = torch.arange(begin, end, dtype=torch.int32)
    magnitude = bits.view(torch.float32)
    m, v = -magnitude if negative else magnitude, magnitude
    codes = codec.encode(m, v)
    if isinstance(codec, Ratio8):
        zero, code = torch.tensor([0, BESIDE_CODE], dtype=torch.uint8).split(1)
        beside = codec.decode(zero, code)[1]
        codes = codes._replace(m=codec.encode(m, beside.expand(len(m))).m)
    for moment, (first, of) in enumerate(firsts):
        inside = np.unique(np.clip(np.append(first, [begin, end]), begin, end))
        expected = torch.from_numpy(
            np.repeat(of[np.searchsorted(first, inside[:-1], side="right") - 1], np.diff(inside))
        )
        different = (codes[moment].long() != expected).nonzero()
        if len(different):
            return int(bits[different[0]])
    return None


def negatives(codec: Codec, firsts: tuple[Bits, Bits]) -> tuple[Bits, Bits]:
    """The same for the magnitudes of negative first moments."""
    first, codes = firsts
    if isinstance(codec, Blockwise8):  # which has no minus one, and whose ties go to the larger, so toward zero
        values = [-Fraction(value) for value in dynamic_values(signed=True) if value <= 0][::-1]
        means = [(a + b) / 2 for a, b in pairwise(values)]
        above = [at_least(mean) + (value_of(at_least(mean)) == mean) for mean in means]
        return np.array([0, *above]), 127 - np.arange(128)
    if isinstance(codec, BFloat16):
        return first, codes | 0x8000  # minus zero included: what rounds to it has the code of the escape
    if isinstance(codec, Ratio8):
        return first, -codes & 0xFF
    return first, np.where(codes > 0, codes | 0x80, codes)


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("negative", [False, True], ids=["positive", "negative"])
def test_every_number_gets_the_nearest_code(
    name: str,
    budget: int,
    compared: Counter[str],
    capsys: pytest.CaptureFixture[str],
    one_thread: None,
    *,
    negative: bool,
) -> None:
    codec = CODECS[name]
    firsts = [first_bits(codec, moment) for moment in (0, 1)]
    if negative:
        firsts[0] = negatives(codec, firsts[0])
    if budget > 1:
        stretches = [
            (begin, min(begin + STRETCH, LARGEST_FINITE + 1)) for begin in range(0, LARGEST_FINITE + 1, STRETCH)
        ]
    else:
        changes = np.unique(np.concatenate([first[:: 1 + len(first) // 300] for first, _ in firsts]))
        stretches = [(max(0, int(at) - BEFORE), min(int(at) + BEFORE, LARGEST_FINITE + 1)) for at in changes]
    for done, (begin, end) in enumerate(stretches):
        at = wrong(codec, begin, end, firsts, negative=negative)
        assert at is None, f"{name}: {'-' if negative else ''}number of bits {at:08x} does not get the nearest code"
        if budget > 1 and done % 4096 == 0:
            with capsys.disabled():
                print(f"\r{name}: {done:,} of {len(stretches):,} stretches", end="", flush=True)  # noqa: T201 - hours
    compared[f"{name}, codes of {'negative' if negative else 'positive'} numbers"] += sum(e - b for b, e in stretches)


@pytest.mark.parametrize("name", CODECS)
def test_the_check_sees_a_change_moved_by_one_number(name: str) -> None:
    codec = CODECS[name]
    for moment in (0, 1):
        firsts = [first_bits(codec, i) for i in (0, 1)]
        first = firsts[moment][0]
        for i in (1, len(first) // 2, len(first) - 1):
            for by in (-1, 1):
                moved = first.copy()
                moved[i] += by
                stretch = max(0, int(first[i]) - 9), min(int(first[i]) + 9, LARGEST_FINITE + 1)
                changed = [*firsts[:moment], (moved, firsts[moment][1]), *firsts[moment + 1 :]]
                assert wrong(codec, *stretch, firsts, negative=False) is None
                assert wrong(codec, *stretch, changed, negative=False) is not None, (moment, i, by)


def test_joint_encodes_as_log8_does() -> None:
    log8 = CODECS["log8"]
    assert isinstance(log8, Log8)
    bits = torch.arange(0, LARGEST_FINITE, 99_991, dtype=torch.int32)
    values = bits.view(torch.float32)

    for one, other in zip(
        Joint(log8.m_grid, log8.v_grid).encode(values, values), log8.encode(values, values), strict=True
    ):
        assert torch.equal(one, other)
