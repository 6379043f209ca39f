"""Roots and their errors by integers, beside exact rationals."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.arithmetic import exact_binary32
from tests.strategies import INFINITY, SMALLEST_NORMAL, floats_of

from guarded_moments.oracle.platform.exact_root import nearest_root, root_error
from guarded_moments.reference.floats import square_root_down, square_root_up

POSITIVE = st.one_of(
    st.integers(1, INFINITY - 1),
    st.integers(1, 2 * SMALLEST_NORMAL),
    st.integers(1, 2**12 - 1).map(lambda root: int(np.float32(root**2).view(np.uint32))),
)
#: Subnormals, the last of them and the first normals, and from 1 to beyond 2.


@given(POSITIVE)
def test_the_nearest_root_by_integers_is_that_of_exact_rationals(bits: int) -> None:
    assert nearest_root(bits) == exact_binary32.sqrt(float(floats_of(bits)))


def test_the_root_of_zero_is_zero() -> None:
    assert nearest_root(0) == 0


@given(POSITIVE, st.integers(-3, 3))
def test_the_error_by_integers_encloses_that_of_a_finer_root(bits: int, away: int) -> None:
    candidate = nearest_root(bits) + away
    low, high = root_error(bits, candidate)
    value, got = Fraction(float(floats_of(bits))), Fraction(float(floats_of(candidate)))
    finest, coarsest = square_root_down(value), square_root_up(value)
    unit = Fraction(2) ** (math.frexp(float(coarsest if coarsest**2 == value else finest))[1] - 24)
    assert high - low < Fraction(1, 2**80)
    assert low <= max(abs(got - finest), abs(got - coarsest)) / unit
    assert high >= min(abs(got - finest), abs(got - coarsest)) / unit
    assert (high <= Fraction(1, 2)) if away == 0 else (low >= Fraction(1, 4))
