"""Binary64 as compiled scalar operations: the guard and the search at native speed, from the same source.

Claimed: see `compiled_operations`.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from guarded_moments.reference.arithmetic.compiled_operations import CompiledOperations, jit


@jit
def _nearest(a: Any) -> Any:  # noqa: ANN401 - a binary64 scalar, typed by numba
    return np.float64(np.float32(a))


@jit
def _select_less(a: Any, b: Any, if_less: Any, otherwise: Any) -> Any:  # noqa: ANN401 - as above
    return if_less if a < b else otherwise


@final
class CompiledBinary64(CompiledOperations):
    """The operations as attributes, each a compiled function of binary64 scalars."""

    nearest = staticmethod(_nearest)
    select_less = staticmethod(_select_less)

    @staticmethod
    def constant(value: float) -> float:
        """A Python float: numba takes it as a binary64 constant."""
        return float(value)
