"""Checkpoints: reading one safely, finding the optimizers in it, compressing their states, and the `.gmc` file."""

from guarded_moments.reference.checkpoint.file_format import read, write
from guarded_moments.reference.checkpoint.first_step import first_step
from guarded_moments.reference.checkpoint.guarded import compress, recover
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, parameters_of
from guarded_moments.reference.checkpoint.safe_loading import load_checkpoint, load_state_dict
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor

__all__ = [
    "GuardedState",
    "GuardedTensor",
    "Parameter",
    "compress",
    "first_step",
    "load_checkpoint",
    "load_state_dict",
    "parameters_of",
    "read",
    "recover",
    "write",
]
