"""Runs of an op model over several updates: both states of a coordinate under one sequence of gradients, bit for bit.

Also the sequence that is worst in exact arithmetic, from the gradient that is worst of the update it is reduced to
(`reference.horizon.reduction`): gradients that grow like `beta1/beta2` from one update to the next.

Claimed: `deviations` are those of the binary32 op model.  Nothing is claimed of `worst_sequence` but that it is within
the bound on gradients: what it attains is a lower bound of the worst case.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.horizon import Run
from guarded_moments.reference.op_models import OpModel

#: How far the enclosure of a worst gradient may stay open.
_RELATIVE_GAP = 1e-4


def deviations(run: Run, model: OpModel, states: States, gradients: Tensor) -> Tensor:
    """`|U_hat - U|` at each update, float64 (updates, n), units of the parameter, rounded up.

    Args:
        run: the run that both states are of.
        model: the op model that they follow.
        states: coordinates, float32, shape (n,).
        gradients: as they enter the moments, float32, shape (updates, n).
    """
    found = []
    for update, g in enumerate(gradients, start=1):
        trajectories = Trajectories(model, run.hyperparameters.options, run.scalars(update))
        found.append(trajectories.deviations(states, g))
        states = trajectories.after(states, g)
    return torch.stack(found)


def worst_sequence(constants: GuardConstants[float], run: Run, states: States, update: int, limit: float) -> Tensor:
    """Gradients that make one update deviate as far as any sequence does, or nearly; float32 (update, n).

    Args:
        constants: of that update, of `later_constants`.
        run: the run.
        states: coordinates in the guard's domain, float32, shape (n,).
        update: its number after recovery, from 1.
        limit: the largest `|g|`.
    """
    worst = enclose(constants, states, relative_gap=_RELATIVE_GAP).gradient
    real = run.real(1)
    beta1, beta2 = float(real.complement), float(real.beta2)
    ratio = beta1 * beta1 / beta2
    last = worst * math.sqrt(beta2**update / sum(ratio**age for age in range(update)))
    ages = torch.arange(update - 1, -1, -1, dtype=torch.float64).unsqueeze(1)
    return (last * (beta1 / beta2) ** ages).clamp(-limit, limit).float()
