"""The second oracle: the worst case of one coordinate, enclosed by interval arithmetic on mpmath's numbers.

The one Adam step (`reference.adam.make_update`, unchanged) is run in two more arithmetics: on pairs of intervals that
hold the native value, the recovered value and their difference over a whole cell of gradients, each operation's
rounding added (`pairs`), and on fractions rounded exactly to binary32 (`exact`).  Branch and bound over cells
(`enclosure`) turns them into a certified lower and upper end of the worst case.

It shares no formula, no bound and no search with `reference.guard`, and computes with Python's integers, never with
the machine's floats, except to guess where to look.  It is slow: tens of milliseconds a coordinate.
"""

from guarded_moments.oracle.intervals.enclosure import Deviation, Enclosure, enclose
from guarded_moments.oracle.intervals.exact import FractionBinary32
from guarded_moments.oracle.intervals.mpf import UnboundedError
from guarded_moments.oracle.intervals.pairs import Pair, PairArithmetic, pair_of

__all__ = [
    "Deviation",
    "Enclosure",
    "FractionBinary32",
    "Pair",
    "PairArithmetic",
    "UnboundedError",
    "enclose",
    "pair_of",
]
