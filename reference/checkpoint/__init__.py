"""Checkpoints: reading an optimizer's state_dict, compressing it, and the `.gmc` file."""

from guarded_moments.reference.checkpoint.file_format import read, write
from guarded_moments.reference.checkpoint.guarded import GuardedState, GuardedTensor, compress, recover
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, load_state_dict, parameters_of

__all__ = [
    "GuardedState",
    "GuardedTensor",
    "Parameter",
    "compress",
    "load_state_dict",
    "parameters_of",
    "read",
    "recover",
    "write",
]
