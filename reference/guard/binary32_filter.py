"""A filter in front of the guard: its own formula in binary32, which settles all but what is near the tolerance.

As in exact geometric predicates, what a narrow format computes decides wherever it is further from the threshold than
it can err.  With `X` the closed form of the guard's binary64 constants over the reals, `f` what binary32 computes of
it and `F` what binary64 does, both errors follow from the formula's source (`rounding_bound`), and with them two
numbers of binary32:

    f <= accepted  implies  F * inflation <= threshold  as the guard compares it
    f > rejected   implies  F * inflation > threshold

The bounds need numbers between limits, which are wide.  A state outside of them, and one in between, is the guard's.

Claimed: a decision of the filter is the guard's.  The rule of each operation is proved (`rounding_bound`); that the
rules are put together rightly here is argued, and tested.  Trusted: that compiled code rounds each operation.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from guarded_moments.reference.arithmetic.rounding_bound import NotBoundedError, RoundingBound, RoundingBounds
from guarded_moments.reference.floats import BINARY32, BINARY64, FloatFormat, round_to_normal
from guarded_moments.reference.guard.closed_form import bound_inflation, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants


class Ordinary(NamedTuple):
    """The states that a filter judges: finite, and far from underflow; all powers of two."""

    largest_moment: float
    smallest_second_moment: float
    largest_second_moment: float


#: Tried in this order, the first of which the bounds exist for; what trains is inside either.
_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))


class Filter(NamedTuple):
    """What compiled code needs of one tensor's filter; NumPy's binary32 scalars."""

    constants: GuardConstants[Any]
    accepted: Any  #: where the bound in binary32 is at most this, the guard accepts
    rejected: Any  #: where it is above this, the guard rejects
    ordinary: Ordinary


@lru_cache(maxsize=64)
def make_filter(constants: GuardConstants[float]) -> Filter:
    """Derive the filter of a guard; one that leaves everything to the guard where no bounds exist.

    Args:
        constants: of the guard.
    """
    held = GuardConstants(*(np.float32(round_to_normal(value)) for value in constants))
    for ordinary in _ORDINARY:
        try:
            narrow = _bounded(constants, BINARY32, ordinary)
            wide = _bounded(constants, BINARY64, ordinary)
        except NotBoundedError:
            continue
        return Filter(held, *_limits(Fraction(constants.threshold), narrow, wide), ordinary)
    return Filter(held, np.float32(-np.inf), np.float32(np.inf), _ORDINARY[0])


def _bounded(constants: GuardConstants[float], fmt: FloatFormat, ordinary: Ordinary) -> RoundingBound:
    """The closed form's error in a format, for ordinary states."""
    op = RoundingBounds(fmt, round_to_normal if fmt == BINARY32 else float)
    moment = RoundingBound(BINARY32.smallest_subnormal, Fraction(ordinary.largest_moment), zero=True)
    second = RoundingBound(Fraction(ordinary.smallest_second_moment), Fraction(ordinary.largest_second_moment))
    found = make_deviation_bound(op)(GuardConstants(*map(op.held, constants)), moment, second, moment, second)
    if found.overflows:
        raise NotBoundedError
    return found


def _limits(threshold: Fraction, narrow: RoundingBound, wide: RoundingBound) -> tuple[Any, Any]:
    """The largest `f` that is certain to be accepted, and the smallest that is certain to be rejected.

    `t` of each format, `k` and `a` of each bound: `F <= t**-k * X + a` and `f >= t**k * X - a`, and the other way.
    """
    t, s, inflation = 1 - BINARY32.unit_roundoff, 1 - BINARY64.unit_roundoff, Fraction(bound_inflation())
    at_most = (
        threshold / inflation - wide.absolute
    ) * s**wide.roundings  # of `X`; the comparison's product is monotonic
    above = threshold * (1 + 4 * BINARY64.unit_roundoff) / inflation  # of `F`, so that its product is above `threshold`
    at_least = (above + wide.absolute) / s**wide.roundings
    return _down(at_most * t**narrow.roundings - narrow.absolute), _up(at_least / t**narrow.roundings + narrow.absolute)


def _down(value: Fraction) -> Any:  # noqa: ANN401 - a scalar of NumPy
    """A binary32 that is at most `value`."""
    nearest = np.float32(float(value))
    return np.nextafter(nearest, np.float32(-np.inf)) if Fraction(float(nearest)) > value else nearest


def _up(value: Fraction) -> Any:  # noqa: ANN401 - as above
    return -_down(-value)
