"""What is identified: a function, called under a protocol that checks everything it gives back.

Claimed: a subject's `step` returns float32 rows of the right shape, made from copies that the kernel may overwrite.
Trusted: that the kernel is deterministic, which one repeated call checks, and that an element's result depends on its
own inputs, its position and the size of the tensor alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, final

import torch
from torch import Tensor

from guarded_moments.oracle.identify.setting import Feature, Setting
from guarded_moments.reference.errors import GuardedMomentsError

#: The rows of inputs, shape (5, n), and of outputs, shape (4, n).
INPUTS = ("p", "g", "m", "v", "vmax")
OUTPUTS = ("p", "m", "v", "vmax")
_STRANGE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class KernelError(GuardedMomentsError):
    """A kernel that cannot be found or called, or that breaks the protocol."""


class Subject(Protocol):
    """A kernel under the protocol."""

    @property
    def name(self) -> str:
        """What to call it in reports."""
        ...

    @property
    def features(self) -> frozenset[Feature]:
        """What it offers beyond the plain step."""
        ...

    def step(self, setting: Setting, inputs: Tensor) -> Tensor:
        """One step: float32 rows `p g m v vmax`, shape (5, n), to rows `p m v vmax`, shape (4, n).

        Raises:
            KernelError: the kernel raised, or gave back something else.
        """
        ...


@final
class FunctionSubject:
    """A function `(p, g, m, v, step, lr, betas, eps) -> (p, m, v)`.

    The first four are fresh contiguous float32 tensors of shape (n,), which it may overwrite and return; `step` is a
    float, 1.0 for the first update; `lr` and `eps` are floats, `betas` a tuple of two.  It returns the new parameter
    and moments, float32, shape (n,).  Options are offered by arguments of these names and passed by keyword:
    `weight_decay`, a float; `maximize`, a bool; `v_max`, a tensor like `v`, only in steps of amsgrad, which return its
    new value as a fourth tensor.
    """

    def __init__(self, function: Callable[..., Any], name: str, device: str = "cpu") -> None:
        """Look at the signature.

        Args:
            function: the kernel.
            name: what to call it in reports and errors.
            device: where its tensors live.
        """
        self._function, self._name, self._device = function, name, device
        self._features = _offered(function)

    @property
    def name(self) -> str:
        """See `Subject`."""
        return self._name

    @property
    def features(self) -> frozenset[Feature]:
        """See `Subject`."""
        return self._features

    def step(self, setting: Setting, inputs: Tensor) -> Tensor:
        """See `Subject`."""
        p, g, m, v, v_max = (row.clone().to(self._device) for row in inputs)
        options: dict[str, object] = {"weight_decay": setting.weight_decay, "maximize": setting.maximize}
        options = {name: value for name, value in options.items() if Feature(name) in self._features}
        if setting.amsgrad:
            options["v_max"] = v_max
        betas = (setting.beta1, setting.beta2)
        try:
            found = self._function(p, g, m, v, setting.step, setting.lr, betas, setting.eps, **options)
        except Exception as error:
            raise raised(self._name, error, inputs.shape[1], setting) from error
        names = OUTPUTS if setting.amsgrad else OUTPUTS[:3]
        if not isinstance(found, (tuple, list)) or len(found) != len(names):
            told = f"{len(found)} values" if isinstance(found, (tuple, list)) else type(found).__name__
            raise KernelError(f"{self._name} returned {told}, expected ({', '.join(names)})")
        rows = [self._row(name, value, inputs.shape[1]) for name, value in zip(names, found, strict=True)]
        return torch.stack(rows if setting.amsgrad else [*rows, inputs[4]])

    def _row(self, name: str, value: object, numel: int) -> Tensor:
        if not isinstance(value, Tensor):
            raise KernelError(f"{self._name} returned {type(value).__name__} for {name}, expected a torch.Tensor")
        if value.dtype is not torch.float32 or value.shape != (numel,):
            told = f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
            raise KernelError(f"{self._name} returned {name} as {told}, expected float32 of shape ({numel},)")
        return value.detach().cpu()


def _offered(function: Callable[..., Any]) -> frozenset[Feature]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled code may have no signature: the plain step only
        return frozenset()
    later = list(parameters.values())
    return frozenset(
        feature
        for feature in Feature
        if any(parameter.name == feature.value and parameter.kind not in _STRANGE for parameter in later)
    )


def raised(name: str, error: Exception, numel: int, setting: Setting) -> KernelError:
    """What a kernel's own exception becomes: one line."""
    text = (str(error).strip().splitlines() or ["without a message"])[0]
    return KernelError(f"{name} raised {type(error).__name__} on {numel} elements at {setting}: {text}")
