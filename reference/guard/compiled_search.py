"""The loop of the exact guard: one coordinate's cells at a time, on a small stack, compiled.

Most coordinates end after their first cells, which is what the vectorised search cannot use.  The formulas are those of
`cells`, in `CompiledBinary64`.

Claimed: what `exact` claims of its search.  Trusted: numba's compiler, checked against the search in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.arithmetic.compiled_operations import jit
from guarded_moments.reference.guard.allowance import make_allowance
from guarded_moments.reference.guard.cells import End, make_end, make_terms, make_upper, make_value
from guarded_moments.reference.guard.cut import FIRST_ENDS, make_cut, make_first_end, make_scale
from guarded_moments.reference.guard.search import Outcome

#: Cells of one coordinate after which it is given up.
MAX_CELLS = 20_000
_STACK = 512  #: cells waiting at a time; depth-first, each split adds one


@lru_cache(maxsize=1)
def compiled_search() -> Callable[..., None]:  # noqa: C901, PLR0915 - one loop over a stack; numba's parts live inside
    """Compile the loop over coordinates; a few seconds, once a process.

    Returns:
        A function of `GuardConstants` of binary64, the largest gradient, `bound_inflation()`, float32 arrays `m v m_hat
        v_hat` of shape (n,), and of the arrays it writes: `Outcome`s as int8, and the gradients where exceeded.
    """
    op: Any = CompiledBinary64()
    make: tuple[Any, ...] = (make_terms, make_end, make_value, make_upper, make_allowance)
    terms_of, end_at, value_at, upper_of, allowance_at = (builder(op, jit) for builder in make)
    places: tuple[Any, ...] = (make_scale, make_first_end, make_cut)
    scale_of, first_end, cut_of = (builder(op, jit) for builder in places)
    ends = np.array(FIRST_ENDS[1:], dtype=np.float64)
    cleared, exceeded, spent = int(Outcome.CLEARED), int(Outcome.EXCEEDED), int(Outcome.SPENT)

    @jit
    def loop(k, limit, inflation, m, v, m_hat, v_hat, outcome, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, C901 - typed by numba
        lows, highs = np.empty((_STACK, 3)), np.empty((_STACK, 3))
        for i in range(len(m)):
            first, recovered_first = np.float64(m[i]), np.float64(m_hat[i])
            terms = terms_of(k, first, np.float64(v[i]), recovered_first, np.float64(v_hat[i]))
            allowed = allowance_at(k, inflation, first, terms.v, recovered_first, terms.v_hat)
            scale = scale_of(k, terms.v, terms.v_hat)
            low = end_at(k, terms.v, terms.v_hat, terms.gap, 0.0)
            at_zero, _ = value_at(k, terms.shift, terms.pull, low)  # of either sign
            outcome[i] = cleared
            if at_zero > allowed:
                outcome[i] = exceeded
                continue
            top = 0
            for j in range(len(ends) + 1):
                g = np.float64(limit) if j == len(ends) else first_end(ends[j], scale, np.float64(limit))
                if g <= low.g and (j < len(ends) or g > 0.0):  # no width, and covered by its neighbours
                    continue
                high = end_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, high)
                if max(plus, minus) > allowed:
                    outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)
                    break
                if upper_of(k, terms.shift, terms.pull, low, high) > allowed:
                    lows[top, 0], lows[top, 1], lows[top, 2] = low.g, low.reciprocal, low.difference
                    highs[top, 0], highs[top, 1], highs[top, 2] = high.g, high.reciprocal, high.difference
                    top += 1
                low = high
            cells = 0
            while top > 0 and outcome[i] == cleared:
                top -= 1
                cells += 1
                low = End(lows[top, 0], lows[top, 1], lows[top, 2])
                high = End(highs[top, 0], highs[top, 1], highs[top, 2])
                g = cut_of(low.g, high.g)
                if g <= low.g or g >= high.g:  # neighbours: nothing is left to split
                    outcome[i], gradient[i] = exceeded, np.float32(low.g)
                    break
                if cells > MAX_CELLS or top + 2 > _STACK:
                    outcome[i] = spent
                    break
                cut = end_at(k, terms.v, terms.v_hat, terms.gap, g)
                plus, minus = value_at(k, terms.shift, terms.pull, cut)
                if max(plus, minus) > allowed:
                    outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)
                    break
                for half in range(2):
                    a, b = (low, cut) if half == 0 else (cut, high)
                    if upper_of(k, terms.shift, terms.pull, a, b) > allowed:
                        lows[top, 0], lows[top, 1], lows[top, 2] = a.g, a.reciprocal, a.difference
                        highs[top, 0], highs[top, 1], highs[top, 2] = b.g, b.reciprocal, b.difference
                        top += 1

    result: Callable[..., None] = loop
    return result
