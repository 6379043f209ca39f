"""The search for grids as such: coordinate descent over which quantiles of the data are the ends of two grids.

Written once, for Python and for numba: what a choice costs comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guarded_moments.reference.adam import Jit, as_is

#: Quantiles of the positions that are tried as the ends of a grid.
LOW = (0.0, 0.0003, 0.001, 0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1)
HIGH = (1.0, 0.9999, 0.9997, 0.999, 0.997, 0.99, 0.97)
#: Low and high of the first moment, low and high of the second, as indices into these.
Choice = tuple[int, int, int, int]

_ROUNDS = 3
COARSE = 4  #: every fourth coordinate shows the way among all candidates, all of them decide among what is near
_NEAR = 2  #: candidates to either side
_AXES = 4


def make_search(cost: Callable[[Any, Choice, int, int], int], jit: Jit = as_is) -> Callable[[Any, Choice], Choice]:
    """Build `search(data, choice)`: a choice that no other end of one grid betters, or what some rounds reach.

    `cost(data, choice, step, enough)` counts what every `step`th coordinate costs; past `enough`, any larger number
    will do.
    """
    lows, highs = len(LOW), len(HIGH)

    def descend(data: Any, choice: Choice, step: int, reach: int) -> Choice:  # noqa: ANN401 - whatever `cost` takes
        best = cost(data, choice, step, 1 << 62)
        unchanged = 0
        for turn in range(_AXES * _ROUNDS):
            axis = (turn + 2) % _AXES  # the second moment first: it decides more
            before, middle = best, choice[axis]
            ends = highs if axis % 2 == 1 else lows
            for candidate in range(max(0, middle - reach), min(ends, middle + reach + 1)):
                m_low, m_high, v_low, v_high = choice
                trial = (
                    candidate if axis == 0 else m_low,
                    candidate if axis == 1 else m_high,
                    candidate if axis == 2 else v_low,  # noqa: PLR2004 - the third of four
                    candidate if axis == 3 else v_high,  # noqa: PLR2004 - the fourth
                )
                if trial == choice:
                    continue
                found = cost(data, trial, step, best)
                if found < best:
                    choice, best = trial, found
            unchanged = unchanged + 1 if best == before else 0
            if unchanged == _AXES or best == 0:
                break
        return choice

    descent: Callable[[Any, Choice, int, int], Choice] = jit(descend)

    def search(data: Any, choice: Choice) -> Choice:  # noqa: ANN401 - as above
        return descent(data, descent(data, choice, COARSE, lows), 1, _NEAR)

    result: Callable[[Any, Choice], Choice] = jit(search)
    return result
