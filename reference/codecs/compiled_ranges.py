"""The search for grids with the closed form, compiled: about a millisecond a tensor, after some seconds of compiling.

The guard of the compiled loops, filter included, and the same descent as in `ranges`.  Claimed: nothing that a file
rests on; the guard decides about every coordinate after the grids are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from guarded_moments.reference.codecs.descent import COARSE, HIGH, Choice, make_search
from guarded_moments.reference.codecs.ranges import Candidates
from guarded_moments.reference.guard.closed_form import closed_form_guard
from guarded_moments.reference.guard.constants import GuardConstants

#: Coordinates that are judged between two looks at whether a choice is already worse than another.
_BLOCK = 256


@dataclass(frozen=True)
class CompiledClosedForm:
    """The closed form of one tensor, as a guard that also searches."""

    constants: GuardConstants[float]

    def __call__(self, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """Where the closed form guarantees the claim; see `closed_form_guard`."""
        return closed_form_guard(self.constants, m, v, m_hat, v_hat)

    def choose(self, states: tuple[Tensor, Tensor], moments: tuple[Candidates, Candidates], first: Choice) -> Choice:
        """The choice of quantiles that the search finds; see `ranges.CompiledSearch`."""
        from guarded_moments.reference.kernels.filtering import (  # noqa: PLC0415 - numba takes half a second
            filtered_guard,
        )

        def coarse_first(values: Any) -> Any:  # noqa: ANN401 - an array of numpy
            """What shows the way is at the beginning, so that each of both searches has whole vectors."""
            return np.concatenate([values[begin::COARSE] for begin in range(COARSE)])

        m, v, m_at, v_at = map(coarse_first, (*(x.numpy() for x in states), *(moment[0] for moment in moments)))
        grids = (*moments[0][1:], *moments[1][1:])
        found = _compiled_search()((filtered_guard(self.constants), m, v, m_at, v_at, *grids), first)
        return (int(found[0]), int(found[1]), int(found[2]), int(found[3]))


@lru_cache(maxsize=1)
def _compiled_search() -> Callable[[Any, Choice], Choice]:
    import numba  # noqa: PLC0415 - half a second

    from guarded_moments.reference.arithmetic.compiled_operations import jit  # noqa: PLC0415 - as above
    from guarded_moments.reference.kernels.filtering import State, make_block_guard  # noqa: PLC0415 - as above

    judge = make_block_guard(_BLOCK)
    highs = len(HIGH)

    @numba.njit(error_model="numpy")
    def decode(at, origin, inverse, table, decoded):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        last = np.int32(len(table) - 1)
        for i in range(len(at)):
            index = np.int32((at[i] - origin) * inverse + 0.5)
            decoded[i] = table[min(max(index, np.int32(0)), last)]

    @jit
    def rejected(data, choice, step, enough):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        guard, m, v, m_at, v_at, m_origins, m_pitches, m_levels, v_origins, v_pitches, v_levels = data
        i, j = choice[0] * highs + choice[1], choice[2] * highs + choice[3]
        m_hat, v_hat, marks = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.uint8)
        m_bits, v_bits, m_hat_bits, v_hat_bits = (
            m.view(np.uint32),
            v.view(np.uint32),
            m_hat.view(np.uint32),
            v_hat.view(np.uint32),
        )
        count, total = 0, (len(m) + step - 1) // step
        for begin in range(0, total, _BLOCK):
            end = min(begin + _BLOCK, total)
            size = end - begin
            decode(m_at[begin:end], m_origins[i], 1.0 / m_pitches[i], m_levels[i], m_hat)
            decode(v_at[begin:end], v_origins[j], 1.0 / v_pitches[j], v_levels[j], v_hat)
            native, recovered = (m[begin:end], v[begin:end]), (m_hat[:size], v_hat[:size])
            bits = (m_bits[begin:end], v_bits[begin:end], m_hat_bits[:size], v_hat_bits[:size])
            judge(guard, State(*native, *recovered, *bits), marks[:size])
            for n in range(size):
                count += marks[n]
            if count > enough:
                break
        return count

    return make_search(rejected, jit)
