"""The second oracle: the worst case of one coordinate, enclosed by interval arithmetic.

The one Adam step (`reference.adam.make_update`, unchanged) is run in two more arithmetics: on pairs of intervals that
hold the native value, the recovered value and their difference over a whole cell of gradients, each operation's
rounding added (`pairs`), and on fractions rounded exactly to binary32 (`exact`).  Branch and bound over cells
(`enclosure`) turns them into a certified lower and upper end of the worst case.

The intervals are made of mpmath's numbers, or of Arb's where python-flint is installed (`Numbers`); the step, the rules
of the pairs and the search are the same.

It shares no formula, no bound and no search with `reference.guard`, and computes with integers of any length, never
with the machine's floats, except to guess where to look.  It is slow: milliseconds a coordinate, or tens of them;
`benchmarks/search.py`
measures both.
"""

from guarded_moments.oracle.intervals.enclosure import Deviation, Enclosure, enclose
from guarded_moments.oracle.intervals.exact import FractionBinary32
from guarded_moments.oracle.intervals.numbers import Numbers
from guarded_moments.oracle.intervals.pairs import Pair, PairArithmetic
from guarded_moments.oracle.intervals.protocol import UnboundedError

__all__ = [
    "Deviation",
    "Enclosure",
    "FractionBinary32",
    "Numbers",
    "Pair",
    "PairArithmetic",
    "UnboundedError",
    "enclose",
]
