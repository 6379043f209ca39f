"""The claim with amsgrad, decided by the closed form and tried by the op model; nothing is searched.

With amsgrad both updates divide by the root of `max(v_max, v')`, with one `v_max` that is kept exactly.  No reciprocal
is larger than without it, and the two are no further apart, so that the closed form's bound holds (`proofs` derives it
for every op model).  The exact guard counts on errors that cancel, which they need not where `v_max` hides that of `v`;
it is never asked.

Claimed: SAFE means that the closed form accepts, so that no binary32 `|g| <= G` violates; UNSAFE comes with a gradient
at which the op model does; UNDECIDED is everything between.  Trusted: as for `guard.closed_form`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import AmsgradTrajectories
from guarded_moments.oracle.worst_case.decision import BLOCK, Decisions, Verdict
from guarded_moments.oracle.worst_case.largest import Worst
from guarded_moments.reference.guard.closed_form import closed_form_deviation, closed_form_guard, in_domain
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.search import CellBounds, States, largest_gradient

#: Gradients tried of each sign: half an octave apart, this many octaves around where the denominator bends.
_OCTAVES = 12


def decide_with_amsgrad(
    constants: GuardConstants[float], trajectories: AmsgradTrajectories, states: States, v_max: Tensor
) -> Decisions:
    """One verdict for each coordinate, and the largest deviation seen.

    Args:
        constants: of the tensor; its `threshold` is the deviation allowed.
        trajectories: the op model, with amsgrad.
        states: any coordinates, float32, shape (n,).
        v_max: the third moment that both states have, float32, shape (n,).
    """
    accepted = closed_form_guard(constants, *states) & in_domain(torch.zeros(()), v_max)
    verdict = torch.where(accepted, Verdict.SAFE, Verdict.UNDECIDED).to(torch.int8)
    witness, largest = torch.zeros(len(v_max)), torch.full((len(v_max),), -1.0, dtype=torch.float64)
    for begin in range(0, len(v_max), BLOCK):
        block = slice(begin, begin + BLOCK)
        part, third = states.slice(begin, begin + BLOCK), v_max[block]
        g = _gradients(constants, trajectories, part, third)
        everywhere = States(*(moment.expand_as(g) for moment in part))
        largest[block], row = trajectories.deviations(everywhere, third.expand_as(g), g).max(dim=0)
        witness[block] = g[row, torch.arange(g.shape[1])]
    verdict[largest > constants.threshold] = Verdict.UNSAFE
    return Decisions(verdict, witness, largest)


def largest_with_amsgrad(constants: GuardConstants[float], states: States, decisions: Decisions) -> Worst:
    """The largest deviation seen of any coordinate, and the largest bound, which is infinite outside the domain."""
    if len(decisions.verdict) == 0:
        return Worst(None, 0.0, 0.0, 0.0)
    inside = in_domain(states.m, states.v) & in_domain(states.m_hat, states.v_hat)
    same = (states.m == states.m_hat) & (states.v == states.v_hat)  # the op model is a function
    upper = torch.where(inside, closed_form_deviation(constants, *states), torch.inf).where(~same, 0.0)
    coordinate = int(decisions.deviation.argmax())
    return Worst(
        coordinate, float(decisions.witness[coordinate]), float(decisions.deviation[coordinate]), float(upper.max())
    )


def _gradients(
    constants: GuardConstants[float], trajectories: AmsgradTrajectories, states: States, v_max: Tensor
) -> Tensor:
    """Gradients of both signs to try, a row of them a kind: over magnitudes, where `v'` overtakes, the ends."""
    limit = largest_gradient(constants)
    scale = CellBounds(constants, states).scale()
    magnitudes = [scale * 2.0 ** (half / 2) for half in range(-2 * _OCTAVES, 2 * _OCTAVES + 1)]
    magnitudes += [trajectories.overtaking(v, v_max) for v in (states.v, states.v_hat)]
    magnitudes.append(torch.full_like(scale, limit))
    tried = [magnitude.nan_to_num().clamp(max=limit).float() for magnitude in magnitudes]
    return torch.stack([torch.zeros_like(v_max), *tried, *(-g for g in tried)])
