"""Kernels made of the one step: any implementation of the family, or one with a field of an op model changed.

Nothing here is taken from the search: op models, constants and placements are the reference's own.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from guarded_moments.oracle.identify import FunctionSubject, Plan, Setting
from guarded_moments.reference.adam import Decay, Scalars, make_step
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import Implementation
from guarded_moments.reference.op_models import Correction
from guarded_moments.reference.scalars import Constants, kernel_scalars

Kernel = Callable[..., tuple[Tensor, ...]]

#: Small and quick: every quantity, both ends of the interpolation, ties and zeros; of 28 elements 4 fill no
#: vector of 8, and 12 none of 16.
QUICK = Plan(
    settings=(
        Setting(step=140),
        Setting(step=22, lr=3e-4, beta1=0.95, beta2=0.99),
        Setting(step=5, beta1=0.0, beta2=0.9),
        Setting(step=10, weight_decay=0.1),
        Setting(step=5, beta1=0.0, beta2=0.9, amsgrad=True),
        Setting(step=10, maximize=True),
    ),
    together=(Setting(step=7, weight_decay=0.01, maximize=True),),
    sizes=(28,),
    large=0,
    pool=2048,
    search=2048,
    redundancy=1,
)


@cache
def held_by(rule: Constants, correction: Correction, setting: Hyperparameters, step: float) -> Scalars[Tensor]:
    """What a kernel holds."""
    scalars = kernel_scalars(setting, step, rule, correction)
    return Scalars(*(torch.tensor(value, dtype=torch.float32) for value in scalars))


def simulated(implementation: Implementation, decay: Decay = Decay.L2, **fields: object) -> Kernel:
    """A kernel that follows an implementation.

    Args:
        implementation: with its op models, placement and constants.
        decay: what its weight decay is.
        **fields: of `Hyperparameters`, such as `lr_is_tensor`, in place of the plain ones.
    """

    def kernel(
        p: Tensor,
        g: Tensor,
        m: Tensor,
        v: Tensor,
        step: float,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        v_max: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        given = Hyperparameters(
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            eps=eps,
            weight_decay=weight_decay,
            decoupled=decay is Decay.DECOUPLED,
            amsgrad=v_max is not None,
            maximize=maximize,
        )
        given = replace(given, **fields)  # type: ignore[arg-type]  # fields of `Hyperparameters`, by name
        part = implementation.assign(len(p), given.options)
        largest = torch.zeros_like(v) if v_max is None else v_max
        after = torch.empty(4, len(p))
        for number, model in enumerate(implementation.models):
            at = part == number
            if bool(at.any()):
                held = held_by(implementation.constants, model.correction, given, step)
                run = make_step(TorchBinary32(), model, given.options)
                after[:, at] = torch.stack(list(run(p[at], g[at], m[at], v[at], largest[at], held)))
        return tuple(after) if v_max is not None else tuple(after[:3])

    return kernel


def subject(implementation: Implementation, decay: Decay = Decay.L2, **fields: object) -> FunctionSubject:
    """The same, ready to be identified, under a name that tells nothing."""
    return FunctionSubject(simulated(implementation, decay, **fields), "a kernel")
