"""What is computed: the bit-exact Adam step, its op models, the guard, the codecs and the checkpoint files.

    >>> import torch
    >>> from guarded_moments.reference import compress, recover
    >>> parameter = torch.nn.Parameter(torch.ones(4))
    >>> optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    >>> parameter.grad = torch.tensor([1e-3, -2e-4, 0.0, 5.0])
    >>> optimizer.step()
    >>> state = compress(optimizer.state_dict(), tolerance=0.01, grad_bound=1.0)
    >>> optimizer.load_state_dict(recover(state))

This package imports no solver, no test framework, and neither the oracle nor the proofs.
"""

from guarded_moments.reference.adam import Decay, Scalars, StepOptions, make_step, make_update
from guarded_moments.reference.checkpoint import (
    GuardedState,
    GuardedTensor,
    compress,
    first_step,
    load_checkpoint,
    load_state_dict,
    parameters_of,
    read,
    recover,
    write,
)
from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.errors import (
    CheckpointError,
    FormatError,
    GuardedMomentsError,
    InvalidClaimError,
    PlatformError,
    UnsupportedError,
)
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, guard_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, implementation_for
from guarded_moments.reference.op_models import OpModel
from guarded_moments.reference.scalars import kernel_scalars

__all__ = [
    "IMPLEMENTATIONS",
    "CheckpointError",
    "Claim",
    "Decay",
    "FormatError",
    "GradientBound",
    "GuardConstants",
    "GuardedMomentsError",
    "GuardedState",
    "GuardedTensor",
    "Horizon",
    "Hyperparameters",
    "Implementation",
    "InvalidClaimError",
    "Log8",
    "LogGrid",
    "OpModel",
    "PlatformError",
    "Scalars",
    "StepOptions",
    "Tolerance",
    "UnsupportedError",
    "closed_form_guard",
    "compress",
    "first_step",
    "guard_constants",
    "implementation_for",
    "kernel_scalars",
    "load_checkpoint",
    "load_state_dict",
    "make_step",
    "make_update",
    "parameters_of",
    "read",
    "recover",
    "write",
]
