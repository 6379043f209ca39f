"""A `torch.optim` class as a kernel: an optimizer of one parameter, whose state is loaded before each step.

Claimed: nothing of the optimizer's own is replaced; its `step` runs as in training, on the path its flags choose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from guarded_moments.oracle.compiled_step import compiled_step
from guarded_moments.oracle.identify.setting import Feature, Setting
from guarded_moments.oracle.identify.subject import KernelError, raised

#: An optimizer's arguments that offer a feature, which functions offer by the feature's own name.
_ARGUMENTS = {Feature.WEIGHT_DECAY: "weight_decay", Feature.AMSGRAD: "amsgrad", Feature.MAXIMIZE: "maximize"}
_NEEDED = ("lr", "betas", "eps")


@dataclass(frozen=True)
class Flags:
    """How the optimizer is made and called."""

    fused: bool = False
    foreach: bool = False
    compiled: bool = False  #: by `torch.compile`
    tensor_lr: bool = False  #: `lr` as a 0-d float32 tensor
    tensor_betas: bool = False  #: `betas` as 0-d float32 tensors

    def __str__(self) -> str:
        shown = (
            ("--fused", self.fused),
            ("--foreach", self.foreach),
            ("--compile", self.compiled),
            ("--tensor-lr", self.tensor_lr),
            ("--tensor-betas", self.tensor_betas),
        )
        return " ".join(flag for flag, on in shown if on)


class _Made(NamedTuple):
    """An optimizer and what it steps."""

    parameter: torch.nn.Parameter
    gradient: Tensor
    optimizer: torch.optim.Optimizer
    state: dict[str, Tensor]  #: of the parameter; always these tensors, to which a compiled step is tied
    step: Callable[[], Any]


@final
class OptimizerSubject:
    """The step of an optimizer whose state is Adam's: `step`, `exp_avg`, `exp_avg_sq`."""

    def __init__(self, optimizer: type[torch.optim.Optimizer], name: str, flags: Flags, device: str = "cpu") -> None:
        """Look at the constructor's arguments.

        Args:
            optimizer: the class.
            name: what to call it; the flags are added.
            flags: how to make and call it.
            device: where its parameter lives.

        Raises:
            KernelError: it does not take what Adam takes, or not these flags.
        """
        self._class, self._flags, self._device = optimizer, flags, device
        self._name = f"{name} {flags}".strip()
        self._arguments = inspect.signature(optimizer).parameters
        wanted = [*_NEEDED, *(flag for flag, on in (("fused", flags.fused), ("foreach", flags.foreach)) if on)]
        missing = [argument for argument in wanted if argument not in self._arguments]
        if missing:
            raise KernelError(f"{name} takes no {' and no '.join(missing)}, as Adam with these flags does")
        self._made: tuple[tuple[Setting, int], _Made] | None = None

    @property
    def name(self) -> str:
        """See `Subject`."""
        return self._name

    @property
    def features(self) -> frozenset[Feature]:
        """See `Subject`."""
        return frozenset(feature for feature, argument in _ARGUMENTS.items() if argument in self._arguments)

    def step(self, setting: Setting, inputs: Tensor) -> Tensor:
        """See `Subject`."""
        try:
            return self._step(setting, inputs)
        except Exception as error:
            raise raised(self._name, error, inputs.shape[1], setting) from error

    def _step(self, setting: Setting, inputs: Tensor) -> Tensor:
        made = self._optimizer(setting, inputs.shape[1])
        p, g, m, v, v_max = inputs
        with torch.no_grad():
            for into, value in ((made.parameter, p), (made.gradient, g)):
                into.copy_(value)
            made.state["step"].fill_(setting.step - 1)
            for name, value in (("exp_avg", m), ("exp_avg_sq", v), ("max_exp_avg_sq", v_max)):
                if name in made.state:
                    made.state[name].copy_(value)
        made.parameter.grad = made.gradient
        made.step()
        state = made.optimizer.state[made.parameter]
        after = (made.parameter, state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq", v_max))
        return torch.stack([row.detach().cpu() for row in after])

    def _optimizer(self, setting: Setting, numel: int) -> _Made:
        """The optimizer for a setting, whatever its step; the last one is kept."""
        key = (Setting(**(vars(setting) | {"step": 1.0})), numel)
        if self._made is not None and self._made[0] == key:
            return self._made[1]
        parameter = torch.nn.Parameter(torch.zeros(numel, device=self._device))
        options: dict[str, object] = {argument: getattr(setting, argument) for argument in _ARGUMENTS.values()}
        options = {name: value for name, value in options.items() if name in self._arguments}
        options |= {"fused": True} if self._flags.fused else {}
        options |= {"foreach": True} if self._flags.foreach else {}
        lr = torch.tensor(setting.lr, dtype=torch.float32) if self._flags.tensor_lr else setting.lr
        betas: tuple[object, object] = (setting.beta1, setting.beta2)
        if self._flags.tensor_betas:
            betas = (torch.tensor(setting.beta1), torch.tensor(setting.beta2))
        make: Any = self._class  # its signature was checked
        optimizer: torch.optim.Optimizer = make([parameter], lr=lr, betas=betas, eps=setting.eps, **options)
        on_device = self._flags.fused and self._device != "cpu"
        state = {"step": torch.zeros((), device=self._device if on_device else "cpu")}
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if setting.amsgrad else 2]
        optimizer.state[parameter] = state | {name: torch.zeros_like(parameter.detach()) for name in names}
        step: Callable[[], Any] = optimizer.step
        if self._flags.compiled:
            torch._dynamo.reset()  # noqa: SLF001 - documented; it would stop compiling `step` after eight optimizers
            step = compiled_step(step)
        made_here = _Made(parameter, torch.zeros_like(parameter.detach()), optimizer, optimizer.state[parameter], step)
        self._made = key, made_here
        return made_here
