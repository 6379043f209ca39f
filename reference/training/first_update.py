"""Watching the first update after recovery: did the gradient stay within the bound, and the run within the claim?

The guarantee is about gradients as they enter the moments: after unscaling and L2 decay (`maximize` changes only the
sign).  A hook before the first `step`, or after its closure, forms them as the step will, compares the largest with
`G`, and is gone.

Claimed: `FirstUpdate.holds` only if every gradient of a guarded parameter was finite and at most `G` (where that is
infinite, at most the op model's overflow limit), betas and eps were those of the file, and torch's CPU path was the one
that the file names.  Another device, whose op model is not known here, and another learning rate than the claim counts
in are reported as assumed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor
from guarded_moments.reference.errors import GuardedMomentsError
from guarded_moments.reference.guard import guard_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_for, implementation_named
from guarded_moments.reference.training.parameters import Placed, local, placed

_LOG = logging.getLogger("guarded_moments")


@dataclass
class FirstUpdate:
    """What is known of the guarantee; complete once the first update after loading has begun."""

    gradient_bound: float  #: `G`; the smallest, where param_groups have their own
    several: bool = False  #: whether they do
    largest: float = 0.0  #: magnitude of the largest gradient of a guarded parameter
    where: str | None = None  #: the parameter it belongs to
    void_because: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    seen: bool = False  #: whether the first update has come

    @property
    def holds(self) -> bool:
        """Whether the guarantee held."""
        return self.seen and not self.void_because

    def sentence(self) -> str:
        """In words."""
        if not self.seen:
            return "the first update after loading has not come yet"
        largest = "no guarded parameter had a gradient"
        if self.where is not None:
            largest = f"largest gradient {self.largest:g} at {self.where}"
        found = f"{largest}, bound {self.gradient_bound:g}" + " and more, by param_group" * self.several
        if self.void_because:
            return f"the guarantee is void for the first update: {'; '.join(self.void_because)} ({found})"
        assumed = f"; assumed: {', '.join(self.assumed)}" if self.assumed else ""
        return f"the guarantee held for the first update ({found}){assumed}"


def watch_first_update(optimizer: torch.optim.Optimizer, state: GuardedState) -> FirstUpdate:
    """Watch the next `step`, and log what was found: a warning if the guarantee is void, else information.

    Args:
        optimizer: with the recovered state of `state` loaded, and nothing else done.
        state: what was recovered; of one optimizer.
    """
    found = FirstUpdate(state.gradient_bound.value, any(tensor.own_bound is not None for tensor in state.tensors))
    by_key = {tensor.key: tensor for tensor in state.tensors}
    keys = [key for group in _groups(state) for key in group["params"]]
    watched = [(place, by_key[key]) for key, place in zip(keys, placed(optimizer), strict=True) if key in by_key]
    bounds = {tensor.key: _bound(state, tensor) for tensor in state.tensors}

    def look() -> None:
        infinite = getattr(optimizer, "found_inf", None)
        if found.seen or (infinite is not None and bool(infinite)):
            return  # a step that is skipped is no update
        found.seen = True
        handle.remove()
        for place, tensor in watched:
            if place.parameter.grad is not None:
                _compare(found, place, tensor, bounds[tensor.key], getattr(optimizer, "grad_scale", None))
                changed = [name for name in ("betas", "eps") if place.group[name] != state.group_of(tensor)[name]]
                if changed:
                    _note(found.void_because, f"{' and '.join(changed)} of {place.where} are not those of the file")
        _LOG.log(logging.WARNING if found.void_because else logging.INFO, "%s", found.sentence())

    def before_step(_: torch.optim.Optimizer, arguments: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - of torch
        """Look now; or, where `step` is given a closure that makes the gradients, when it has made them."""
        own, *given = arguments
        closure = given[0] if given else named.get("closure")
        if closure is None:
            look()
            return None

        def closure_and_look() -> Any:  # noqa: ANN401 - what the closure gives
            loss = closure()
            look()
            return loss

        return (own, closure_and_look, *given[1:]), {key: value for key, value in named.items() if key != "closure"}

    handle = optimizer.register_step_pre_hook(before_step)
    return found


def _groups(state: GuardedState) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = state.skeleton["param_groups"]
    return groups


def _bound(state: GuardedState, tensor: GuardedTensor) -> float:
    """The largest gradient that the claim is about: `G`, or the op model's overflow limit where that is less."""
    group = Hyperparameters.from_param_group(state.group_of(tensor), tensor.where)
    implementation = implementation_named(tensor.implementation)
    scalars = implementation.scalars(replace(group, lr=tensor.lr), tensor.next_step)
    claim = state.claim_for(tensor)
    return float(guard_constants(claim, implementation, group.options, scalars, tensor.lr).gradient_bound)


def _compare(found: FirstUpdate, place: Placed, tensor: GuardedTensor, bound: float, scale: Tensor | None) -> None:
    largest = _largest_entering(place, scale)
    if math.isnan(largest) or largest >= found.largest:
        found.largest, found.where = largest, place.where
    if not largest <= bound:
        _note(found.void_because, f"a gradient of {place.where} is {largest:g}, above {bound:g}")
    if float(place.group["lr"]) != tensor.lr:
        _note(found.assumed, f"deviations scale with lr, which is {float(place.group['lr']):g} and not {tensor.lr:g}")
    if place.parameter.device.type != "cpu":
        _note(found.assumed, f"{place.parameter.device.type} follows {tensor.implementation}")
        return
    try:
        own = implementation_for(place.group).name
    except GuardedMomentsError as error:
        _note(found.void_because, str(error))
        return
    if own != tensor.implementation:
        _note(found.void_because, f"this run follows {own}, the guarantee is about {tensor.implementation}")


def _largest_entering(place: Placed, scale: Tensor | None) -> float:
    """The largest magnitude that enters the moments: rounded as torch does it, and exactly; the larger counts."""
    gradient, parameter = local(place.parameter.grad).detach(), local(place.parameter).detach()  # type: ignore[arg-type]
    decay = float(place.group.get("weight_decay", 0.0))
    if gradient.numel() == 0:
        return 0.0
    if scale is not None:
        gradient = gradient / scale
    forms: list[Callable[[], Tensor]] = [lambda: gradient]
    if decay and not place.group.get("decoupled_weight_decay", False):
        forms = [
            lambda: gradient.add(parameter, alpha=decay),
            lambda: gradient.double().add(parameter.double(), alpha=decay),
        ]
    return max((float(form().abs().max()) for form in forms), key=lambda value: (math.isnan(value), value))


def _note(lines: list[str], text: str) -> None:
    if text not in lines:
        lines.append(text)
