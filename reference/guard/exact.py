"""The exact guard: branch and bound over gradients where the closed form does not accept.

The same formulas (`cells`) in two orders of work: few coordinates together in torch (`search`), many one after the
other in compiled code (`compiled_search`), which is imported when it is first needed.  What both leave open although no
gradient they saw exceeds the tolerance, a few in ten thousand, is searched with sharper bounds (`signed_cells`).

Claimed: CLEARED means that no gradient of the claim can violate it, the rounding of both trajectories and of this
evaluation included.  EXCEEDED comes with a gradient whose real-number deviation is, as far as binary64 can tell, above
what the slack leaves: the coordinate violates the claim or is within the slack of it.  SPENT means that the budget of
cells ran out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.guard.closed_form import bound_inflation, closed_form_guard, in_domain
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.guard.search import CellBounds, Cleared, Outcome, States, cleared, largest_gradient
from guarded_moments.reference.guard.signed_cells import uncleared

#: Coordinates of one call from which compiling pays, and those searched together in torch below it.
WORTH_COMPILING = 1 << 20
_TORCH_BLOCK = 1 << 12


class Search(NamedTuple):
    """One entry per coordinate."""

    outcome: Tensor  #: int8, of `Outcome`
    gradient: Tensor  #: float32: where it was exceeded


def search(constants: GuardConstants[float], states: States) -> Search:
    """Search coordinates of one tensor; see the module's claim.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        states: coordinates in the guard's domain, float32 on CPU, shape (n,).
    """
    from guarded_moments.reference.guard.compiled_search import (  # noqa: PLC0415 - importing numba takes half a second
        compiled_search,
    )

    outcome = np.empty(len(states.m), dtype=np.int8)
    gradient = np.zeros(len(states.m), dtype=np.float32)
    held = binary64_constants(constants)
    arrays = (moment.contiguous().numpy() for moment in states)
    compiled_search()(held, np.float32(largest_gradient(constants)), bound_inflation(), *arrays, outcome, gradient)
    return Search(torch.from_numpy(outcome), torch.from_numpy(gradient))


def exact_guard(
    constants: GuardConstants[float],
    m: Tensor,
    v: Tensor,
    m_hat: Tensor,
    v_hat: Tensor,
    *,
    compiled: bool | None = None,
) -> Tensor:
    """Where the claim is guaranteed, by the closed form or else by the search: a bool tensor.

    Arguments as `closed_form_guard`, and `compiled`: whether to search in compiled code; by default few coordinates are
    searched in plain torch, many in compiled code, whose compilation takes as long as `WORTH_COMPILING` coordinates.
    """
    accepted = closed_form_guard(constants, m, v, m_hat, v_hat)
    judged = (~accepted & in_domain(m, v) & in_domain(m_hat, v_hat)).nonzero().flatten()
    states = States(m, v, m_hat, v_hat).select(judged)
    compiled = len(judged) >= WORTH_COMPILING if compiled is None else compiled
    found = _compiled(constants, states) if compiled else _vectorised(constants, states)
    accepted[judged] = found.cleared
    within = (~found.cleared & (found.best * constants.step <= constants.threshold)).nonzero().flatten()
    for begin in range(0, len(within), _TORCH_BLOCK):
        index = within[begin : begin + _TORCH_BLOCK]
        left = uncleared(constants, states.select(index), shortest=1).cells.coordinate
        accepted[judged[index]] = True
        accepted[judged[index[left]]] = False
    return accepted


def _vectorised(constants: GuardConstants[float], states: States) -> Cleared:
    blocks = [states.slice(begin, begin + _TORCH_BLOCK) for begin in range(0, max(1, len(states.m)), _TORCH_BLOCK)]
    return Cleared(*(torch.cat(parts) for parts in zip(*(cleared(constants, block) for block in blocks), strict=True)))


def _compiled(constants: GuardConstants[float], states: States) -> Cleared:
    found, bounds = search(constants, states), CellBounds(constants, states)
    best = torch.maximum(*bounds.value(bounds.end(found.gradient.abs().double())))
    return Cleared(found.outcome == Outcome.CLEARED, best)
