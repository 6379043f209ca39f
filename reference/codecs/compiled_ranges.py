"""The search for grids with the closed form, compiled: about a millisecond a tensor, after two seconds of compiling.

The same guard, in `CompiledBinary64`, and the same descent as in `ranges`.  Claimed: nothing that a file rests on; the
guard decides about every coordinate after the grids are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from guarded_moments.reference.codecs.descent import HIGH, Choice, make_search
from guarded_moments.reference.codecs.ranges import Candidates
from guarded_moments.reference.guard.closed_form import bound_inflation, closed_form_guard, make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants


@dataclass(frozen=True)
class CompiledClosedForm:
    """The closed form of one tensor, as a guard that also searches."""

    constants: GuardConstants[float]

    def __call__(self, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """Where the closed form guarantees the claim; see `closed_form_guard`."""
        return closed_form_guard(self.constants, m, v, m_hat, v_hat)

    def choose(self, states: tuple[Tensor, Tensor], moments: tuple[Candidates, Candidates], first: Choice) -> Choice:
        """The choice of quantiles that the search finds; see `ranges.CompiledSearch`."""
        held = binary64_constants(self.constants)
        m, v = (x.double().numpy() for x in states)
        found = _compiled_search()((held, bound_inflation(), m, v, *moments[0], *moments[1]), first)
        return (int(found[0]), int(found[1]), int(found[2]), int(found[3]))


@lru_cache(maxsize=1)
def _compiled_search() -> Callable[[Any, Choice], Choice]:
    from guarded_moments.reference.arithmetic.compiled_binary32 import (  # noqa: PLC0415 - numba takes half a second
        jit,
    )
    from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64  # noqa: PLC0415 - as above

    op: Any = CompiledBinary64()
    bound = make_deviation_bound(op, jit)
    highs = len(HIGH)

    @jit
    def rejected(data, choice, step, enough):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        k, inflation, m, v, m_at, m_origins, m_pitches, m_levels, v_at, v_origins, v_pitches, v_levels = data
        i, j = choice[0] * highs + choice[1], choice[2] * highs + choice[3]
        m_origin, m_inverse, m_table = m_origins[i], 1.0 / m_pitches[i], m_levels[i]
        v_origin, v_inverse, v_table = v_origins[j], 1.0 / v_pitches[j], v_levels[j]
        count = 0
        for n in range(0, len(m), step):
            m_index = int((m_at[n] - m_origin) * m_inverse + 0.5)
            v_index = int((v_at[n] - v_origin) * v_inverse + 0.5)
            m_hat = np.float64(m_table[min(max(m_index, 0), len(m_table) - 1)])
            v_hat = np.float64(v_table[min(max(v_index, 0), len(v_table) - 1)])
            within = bound(k, m[n], v[n], m_hat, v_hat) * inflation <= k.threshold
            if not (within or (m[n] == m_hat and v[n] == v_hat)):
                count += 1
                if count > enough:
                    break
        return count

    return make_search(rejected, jit)
