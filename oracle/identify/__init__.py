"""Which op models a kernel follows: any Adam step, called as a black box and told apart by inputs made for it.

    >>> from guarded_moments.oracle.identify import identify, load_subject
    >>> found = identify(load_subject("torch.optim:AdamW"))
    >>> found.exact
    True
    >>> [implementation.name.rpartition("/")[2] for implementation, _ in found.named]
    ['single', 'foreach']

A kernel is a function `(p, g, m, v, step, lr, betas, eps) -> (p, m, v)`; `FunctionSubject` says what it is given and
must return.
"""

from guarded_moments.oracle.identify.candidates import Candidate, Quantity
from guarded_moments.oracle.identify.identification import Identification, identify
from guarded_moments.oracle.identify.loading import load_subject
from guarded_moments.oracle.identify.optimizer import Flags, OptimizerSubject
from guarded_moments.oracle.identify.report import as_json, in_words
from guarded_moments.oracle.identify.setting import COMPILED_PLAN, Feature, Plan, Setting
from guarded_moments.oracle.identify.subject import FunctionSubject, KernelError, Subject

__all__ = [
    "COMPILED_PLAN",
    "Candidate",
    "Feature",
    "Flags",
    "FunctionSubject",
    "Identification",
    "KernelError",
    "OptimizerSubject",
    "Plan",
    "Quantity",
    "Setting",
    "Subject",
    "as_json",
    "identify",
    "in_words",
    "load_subject",
]
