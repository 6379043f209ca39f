"""Small checkpoints of real optimizers, the same with one thing changed, and one more step of the real optimizer."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from tests.reference.checkpoint.sealing import with_right_header
from torch import Tensor, nn

from guarded_moments.reference.checkpoint import GuardedState
from guarded_moments.reference.checkpoint.optimizer_state import StateDict

#: Layers that are no multiple of a vector, so that every kernel has a tail.
WIDTHS = (13, 17, 5)
STEPS = 12


def trained(
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW, steps: int = STEPS, **options: object
) -> StateDict:
    """The state_dict of an optimizer after some steps on a small model, with named parameters in two groups."""
    generator = torch.Generator().manual_seed(7)
    model = nn.Sequential(nn.Linear(*WIDTHS[:2]), nn.Tanh(), nn.Linear(*WIDTHS[1:]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    named = list(model.named_parameters())
    groups = [
        {"params": [(name, p) for name, p in named if p.ndim > 1], "weight_decay": 0.1},
        {"params": [(name, p) for name, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    made = optimizer(groups, lr=1e-3, **options)
    for _ in range(steps):
        made.zero_grad()
        inputs = torch.randn(32, WIDTHS[0], generator=generator)
        (model(inputs) - inputs[:, : WIDTHS[-1]]).square().mean().backward()
        made.step()
    # A copy: the optimizer would go on to write into its own.
    return copy.deepcopy(made.state_dict())


def only(state_dict: StateDict, *keys: int) -> StateDict:
    """The same checkpoint with the state of some parameters alone, as if the others had never stepped."""
    return {**state_dict, "state": {key: state_dict["state"][key] for key in keys}}


def numel(state_dict: StateDict) -> int:
    """The coordinates of a checkpoint."""
    return sum(entry["exp_avg"].numel() for entry in state_dict["state"].values())


def updates(state_dict: StateDict, gradients: dict[int, Tensor] | float) -> dict[int, Tensor]:
    """What the next step of the real AdamW adds to each parameter: the step is made on parameters of zero.

    Args:
        state_dict: the state before the step.
        gradients: of each parameter, or one value for all.
    """
    state_dict = copy.deepcopy(state_dict)
    parameters = {key: nn.Parameter(torch.zeros(1)) for group in state_dict["param_groups"] for key in group["params"]}
    parameters |= {key: nn.Parameter(torch.zeros_like(e["exp_avg"])) for key, e in state_dict["state"].items()}
    for group in state_dict["param_groups"]:
        group.pop("param_names", None)
    optimizer = torch.optim.AdamW(
        [{"params": [parameters[k] for k in g["params"]]} for g in state_dict["param_groups"]]
    )
    optimizer.load_state_dict(state_dict)
    for key in state_dict["state"]:
        parameter = parameters[key]
        if isinstance(gradients, float):
            parameter.grad = torch.full_like(parameter, gradients)
        else:
            parameter.grad = gradients[key].view_as(parameter)
    optimizer.step()
    return {key: parameters[key].detach() for key in state_dict["state"]}


def same_bits(a: object, b: object) -> bool:
    """Whether two pieces of a state_dict are the same: types, keys and their order, shapes, strides, bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return False
        return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same_bits(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return a == b or (a != a and b != b)  # noqa: PLR0124 - NaN


def changed(state_dict: StateDict, change: Callable[[StateDict], object]) -> StateDict:
    """A deep copy, after a change in place; or what the change returns in its place."""
    altered = copy.deepcopy(state_dict)
    instead = change(altered)
    return altered if instead is None else instead  # type: ignore[return-value]


def with_codes(state: GuardedState, tensor: int, at: Iterable[int], m_code: Callable[[Tensor], Tensor]) -> GuardedState:
    """The same file with other first-moment codes at some coordinates of one tensor, as a broken encoder leaves it."""
    guarded, index = state.tensors[tensor], torch.tensor(list(at))
    codes = guarded.m_codes.clone()
    codes[index] = m_code(codes[index])
    return with_tensor(state, tensor, m_codes=codes)


def with_tensor(state: GuardedState, tensor: int, **fields: object) -> GuardedState:
    """The same file with fields of one guarded tensor replaced."""
    tensors = list(state.tensors)
    tensors[tensor] = replace(tensors[tensor], **fields)  # type: ignore[arg-type]
    return replace(state, tensors=tuple(tensors))


def levels_up(count: int) -> Callable[[Tensor], Tensor]:
    """A change of codes: magnitudes that many levels higher, the last level at most."""
    return lambda codes: (codes & 0x80) | ((codes & 0x7F).int() + count).clamp(max=127).to(torch.uint8)


def accepted(state: GuardedState, tensor: int) -> list[int]:
    """The coordinates of one tensor that are stored in codes."""
    indices: list[int] = (~state.tensors[tensor].escaped).nonzero().flatten().tolist()
    return indices


def rewritten(path: Path, old: bytes, new: bytes) -> None:
    """Replace text of the same length in a `.gmc` file's header, and put its digest right."""
    content = path.read_bytes()
    assert len(old) == len(new)
    assert content.count(old) == 1, f"{content.count(old)} times {old!r}"
    content = content.replace(old, new)
    path.write_bytes(with_right_header(content))
