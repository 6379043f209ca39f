"""Optimizer states that are not Adam's, recognised by what they hold, so that a refusal can say what was found.

Nothing is decided here but the words of a message.  The signatures are the keys that the named optimizers put into a
parameter's state: those of torch 2.13, bitsandbytes 0.50 and transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

#: A key of a parameter's state, and whose it is; the first that is found counts.
_SIGNATURES = (
    ("__bnb_optimizer_quant_state__", "a bitsandbytes optimizer, whose moments are quantised already"),
    ("qmap1", "a bitsandbytes optimizer, whose moments are quantised already"),
    ("state1", "a bitsandbytes optimizer, which keeps other moments than torch's"),
    ("exp_avg_sq_row", "Adafactor (transformers), which keeps rows and columns of the second moment"),
    ("row_var", "Adafactor (torch), which keeps rows and columns of the second moment"),
    ("RMS", "Adafactor (transformers)"),
    ("exp_inf", "Adamax"),
    ("mu_product", "NAdam"),
    ("square_avg", "RMSprop or Adadelta"),
    ("sum", "Adagrad"),
    ("ax", "ASGD"),
    ("prev", "Rprop"),
    ("exp_avg_slow", "AdEMAMix"),
    ("exp_avg_var", "AdaBelief"),
    ("z", "a schedule-free optimizer"),
    ("momentum_buffer", "SGD with momentum, or Muon"),
    ("func_evals", "L-BFGS"),
    ("exp_avg", "an optimizer with a first moment only, such as Lion"),
)
#: The same for a param_group, where the states are empty or ambiguous.
_GROUP_SIGNATURES = (
    ("momentum_decay", "NAdam"),
    ("nesterov", "SGD or Muon"),
    ("correct_bias", "the AdamW of older transformers"),
    ("t_alpha", "a bitsandbytes optimizer"),
    ("scale_parameter", "Adafactor (transformers)"),
    ("lr_decay", "Adagrad"),
    ("rho", "Adadelta"),
    ("etas", "Rprop"),
    ("lambd", "ASGD"),
    ("centered", "RMSprop"),
)


def owner_of_state(entry: Mapping[Any, object]) -> str | None:
    """Whose a parameter's state is that is not Adam's, or None if it is not known."""
    return next((owner for key, owner in _SIGNATURES if key in entry), None)


def owner_of_group(group: Mapping[Any, object]) -> str | None:
    """Whose a param_group is that is not Adam's, or None if it is not known."""
    return next((owner for key, owner in _GROUP_SIGNATURES if key in group), None)


def what_tensor(value: Tensor) -> str:
    """A tensor that is no plain one, in words."""
    name = type(value).__name__
    if name == "DTensor":
        return "a DTensor, one rank's part of the whole"
    if name.startswith("OptimState"):
        return f"an {name} of torchao, which is quantised already"
    return f"a {name} ({value.layout})"
