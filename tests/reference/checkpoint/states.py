"""What the tests of checkpoints share: real samples, states made to measure, and equality down to the bits."""

import copy
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint import GuardedState, compress, load_state_dict
from guarded_moments.reference.checkpoint.layouts import Place, entry_at

DATA = Path(__file__).parents[2] / "data"

#: An op model that does not depend on the machine.
OP_MODEL = "torch-2.13-cpu-avx2/single"

#: Samples that are states of Adam or AdamW.
SAMPLES = (
    "plain_adam_optimizer",
    "plain_adamw_2groups_tensorlr_optimizer",
    "plain_adamw_fused",
    "plain_adamw_foreach",
    "plain_adamw_named_amsgrad",
    "plain_adamw_bf16params",
    "plain_adamw_unstepped",
    "old_int_step",
    "fsdp2_full_optim",
    "hf_trainer_optimizer_3_of_28",
)

#: Samples that hold such a state beside other things, and where.
LARGER_SAMPLES: dict[str, Place] = {
    "model_optimizer_dict.pt": ("optimizer",),
    "ddp_model_optimizer.pt": ("optimizer",),
    "lightning_fp32.ckpt": ("optimizer_states", 0),
}

#: The trainer's schedule had ended: its stored learning rate is 0.
LEARNING_RATE = {"hf_trainer_optimizer_3_of_28": 5e-5}

GROUP = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.01,
    "amsgrad": False,
    "maximize": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": True,
}


def sample(name: str) -> dict[str, Any]:
    """A sample's state_dict, as the library reads it."""
    return load_state_dict(DATA / f"{name}.pt")


def state_of(*moments: tuple[Tensor, Tensor], step: object = None, **group: object) -> dict[str, Any]:
    """The state_dict of AdamW with one parameter for each pair of moments."""
    step = torch.tensor(9.0) if step is None else step
    entries = {key: {"step": copy.deepcopy(step), "exp_avg": m, "exp_avg_sq": v} for key, (m, v) in enumerate(moments)}
    return {"state": entries, "param_groups": [{**GROUP, **group, "params": list(range(len(moments)))}]}


def compressed(state_dict: Mapping[str, Any], **choices: Any) -> GuardedState:  # noqa: ANN401 - of `compress`
    """`compress` with an ordinary claim on the same op model on every machine."""
    return compress(state_dict, **{"tolerance": 0.01, "grad_bound": 1.0, "implementation": OP_MODEL, **choices})


def raw(tensor: Tensor) -> bytes:
    """The bytes of the elements, in the order of the indices."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().data) if flat.numel() else b""


def differences(a: object, b: object, where: str = "") -> list[str]:
    """Where two values are not the same to the bit: types, order of keys, dtypes, shapes, strides, bits.

    `where` begins the path of each.
    """
    if type(a) is not type(b):
        return [f"{where}: {type(a).__name__} and {type(b).__name__}"]
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _tensor_differences(a, b, where)
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return [f"{where}: keys {list(a)} and {list(b)}"]
        return [line for key in a for line in differences(a[key], b[key], f"{where}[{key!r}]")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [line for i in range(len(a)) for line in differences(a[i], b[i], f"{where}[{i}]")]
    if isinstance(a, float) and isinstance(b, float):  # minus zero and NaN too
        a, b = struct.pack("<d", a), struct.pack("<d", b)
    return [] if a == b else [f"{where}: {a!r} and {b!r}"]


def _tensor_differences(a: Tensor, b: Tensor, where: str) -> list[str]:
    found = [
        f"{where}.{what}: {getattr(a, what)} and {getattr(b, what)}"
        for what in ("dtype", "shape", "requires_grad", "layout")
        if getattr(a, what) != getattr(b, what)
    ]
    if a.stride() != b.stride():
        found.append(f"{where}.stride: {a.stride()} and {b.stride()}")
    return found or ([f"{where}: bits of {a} and {b}"] if raw(a) != raw(b) else [])


def without_moments(state_dict: Mapping[str, Any], state: GuardedState) -> dict[str, Any]:
    """A copy of a checkpoint with the guarded moments taken out."""
    left: dict[str, Any] = copy.deepcopy(dict(state_dict))
    for tensor in state.tensors:
        entry = entry_at(left, tensor.place, tensor.key)
        entry.pop("exp_avg")
        entry.pop("exp_avg_sq")
    return left


def optimizer_for(state_dict: Mapping[str, Any]) -> torch.optim.Optimizer:
    """A real optimizer of the state_dict's kind over parameters that are zero, with the state loaded."""
    groups = []
    for group in state_dict["param_groups"]:
        shapes = [state_dict["state"].get(key, {}).get("exp_avg", torch.zeros(1)) for key in group["params"]]
        options = {k: v for k, v in group.items() if k not in {"params", "param_names", "decoupled_weight_decay"}}
        options["lr"] = options["lr"] if isinstance(options["lr"], Tensor) else float(options["lr"])
        parameters: list[object] = [torch.nn.Parameter(torch.zeros_like(moment)) for moment in shapes]
        if "param_names" in group:
            parameters = list(zip(group["param_names"], parameters, strict=True))
        groups.append({**options, "params": parameters})
    decoupled = state_dict["param_groups"][0].get("decoupled_weight_decay", False)
    optimizer = (torch.optim.AdamW if decoupled else torch.optim.Adam)(groups)
    optimizer.load_state_dict(copy.deepcopy(dict(state_dict)))
    return optimizer
