"""The choice of what the intervals are made of: whose arithmetic is trusted, and how long it takes.

`make bench` times both.  When it was last run with them, enclosures to 1 % took mpmath 2.8 times as long as Arb at the
main job's step, and 2.4 times at step 100,000; what is left is mostly Python between the operations, the same for both.
"""

from __future__ import annotations

import importlib
from enum import Enum
from typing import Any, cast

from guarded_moments.oracle.intervals import mpf
from guarded_moments.oracle.intervals.protocol import Intervals
from guarded_moments.reference.errors import UnsupportedError


class Numbers(Enum):
    """Two implementations of `Intervals` that share no arithmetic."""

    MPMATH = "mpmath"  #: ends in Python's integers (`mpf`)
    ARB = "arb"  #: midpoints with radii, in C (`balls`); needs python-flint, the extra `flint`

    @property
    def intervals(self) -> Intervals[Any]:
        """Their operations.

        Raises:
            UnsupportedError: they need python-flint, and it is not installed.
        """
        if self is Numbers.MPMATH:
            return mpf
        try:
            balls = importlib.import_module("guarded_moments.oracle.intervals.balls")
        except ModuleNotFoundError as error:
            if error.name != "flint":
                raise
            raise UnsupportedError(
                "Arb's intervals need python-flint, which is not installed: pip install 'guarded-moments[flint]'"
            ) from None
        return cast("Intervals[Any]", balls)
