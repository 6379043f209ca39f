"""One step of the op models beside one step of `torch.optim`, bit for bit; and what to say of the first difference.

A batch of tensors is a float32 tensor of shape (5, n), rows `p g m v vmax`, cut into the tensors of one param_group.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from tests.strategies import Array
from torch import Tensor

from guarded_moments.oracle.compiled_step import compiled_step
from guarded_moments.reference.adam import Scalars, StepOptions, make_step
from guarded_moments.reference.arithmetic import Arithmetic, NumpyBinary32, TorchBinary32
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.hyperparameters import Hyperparameters, next_step
from guarded_moments.reference.implementations import Implementation, implementation_for
from guarded_moments.reference.op_models import OpModel

T = TypeVar("T")

INPUTS = ("p", "g", "m", "v", "vmax")
OUTPUTS = ("p", "m", "v", "vmax")
PATHS: dict[str, dict[str, bool]] = {"single": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
OPTIMIZERS: dict[str, type[torch.optim.Adam]] = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
BETA1 = (0.0, 0.3, 0.4, 0.5, 0.9, 0.95)
STEPS_DONE = (0.0, 1.0, 9.0, 999.0, 2.0**24)


class Domain(NamedTuple, Generic[T]):
    """An arithmetic, and the way in and out."""

    op: Arithmetic[T]
    enter: Callable[[Tensor], T]
    leave: Callable[[T], Tensor]


NUMPY: Domain[Array] = Domain(NumpyBinary32(), lambda x: x.numpy(), lambda x: torch.from_numpy(np.array(x)))
TORCH: Domain[Tensor] = Domain(TorchBinary32(), lambda x: x, lambda x: x)
DOMAINS: dict[str, Domain[Any]] = {"NumpyBinary32": NUMPY, "TorchBinary32": TORCH}


@dataclass(frozen=True)
class Setting:
    """How torch's optimizer is made."""

    path: str = "single"
    optimizer: str = "Adam"
    lr: float = 1e-3
    tensor_lr: bool = False
    tensor_betas: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = False
    steps_done: float = 0.0

    def make(self, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Adam:
        """The optimizer, without state."""
        betas = (self.beta1, self.beta2)
        return OPTIMIZERS[self.optimizer](
            parameters,
            lr=torch.tensor(self.lr, dtype=torch.float32) if self.tensor_lr else self.lr,
            betas=tuple(torch.tensor(betas, dtype=torch.float32)) if self.tensor_betas else betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            amsgrad=self.amsgrad,
            maximize=self.maximize,
            **PATHS[self.path],
        )


def random_settings(
    rng: np.random.Generator,
    *,
    path: str,
    optimizer: str,
    decay: bool,
    thorough: bool = False,
) -> Iterator[Setting]:
    """Every combination of `beta1` and `steps_done`, and of `amsgrad` and `maximize` if `thorough`.

    The rest is drawn at random.
    """
    flags = tuple(itertools.product((False, True), repeat=2))
    combinations = [
        (beta1, steps_done, flag)
        for beta1, steps_done in itertools.product(BETA1, STEPS_DONE)
        for flag in (flags if thorough else (flags[rng.integers(len(flags))],))
    ]
    for beta1, steps_done, (amsgrad, maximize) in combinations:
        yield Setting(
            path=path,
            optimizer=optimizer,
            lr=float(rng.choice((1e-3, 3e-4, 0.1, 1.0, 1e-40))),
            tensor_lr=path != "foreach" and rng.random() < 0.4,  # which torch refuses of foreach
            tensor_betas=path != "foreach" and rng.random() < 0.2,
            beta1=beta1,
            beta2=float(rng.choice((0.999, 0.99, 0.95, 0.9, 0.3, 0.0))),
            eps=float(rng.choice((1e-8, 1e-8, 1e-15, 0.0, 1e-46))),
            weight_decay=float(rng.choice((0.01, 0.1, 1e-3))) if decay else 0.0,
            amsgrad=amsgrad,
            maximize=maximize,
            steps_done=steps_done,
        )


class Native:
    """torch's own optimizer on a batch of tensors."""

    def __init__(
        self,
        setting: Setting,
        states: Tensor,
        sizes: Sequence[int],
        *,
        views: bool = False,
        fresh: bool = False,
        compiled: bool = False,
    ) -> None:
        """Copy what is needed of `states`.

        Args:
            setting: how to make the optimizer.
            states: rows `p g m v vmax`; the gradients are not used.
            sizes: how many elements each tensor has.
            views: let the tensors be slices of one buffer, at any alignment.
            fresh: let torch make the moments and the step count.
            compiled: run the step through `torch.compile`.
        """
        assert states.shape == (5, sum(sizes)), (states.shape, sum(sizes))
        self.setting = setting
        self.sizes = list(sizes)
        rows = [row.split(self.sizes) for row in states.clone()]
        if not views:
            rows = [tuple(piece.clone() for piece in row) for row in rows]
        p, _, m, v, self._v_max = rows
        self._parameters = [torch.nn.Parameter(piece) for piece in p]
        self._optimizer = setting.make(self._parameters)
        self._run = compiled_step(self._optimizer.step) if compiled else self._optimizer.step
        if fresh:
            return
        for i, parameter in enumerate(self._parameters):
            state = {"step": torch.tensor(setting.steps_done, dtype=torch.float32), "exp_avg": m[i], "exp_avg_sq": v[i]}
            if setting.amsgrad:
                state["max_exp_avg_sq"] = self._v_max[i]
            self._optimizer.state[parameter] = state

    def set_steps_done(self, steps: float) -> None:
        """Let every tensor have had that many updates; the rest of its state stays."""
        for state in self._optimizer.state.values():
            state["step"].fill_(steps)

    @property
    def group(self) -> dict[str, Any]:
        """The param_group, as a checkpoint has it."""
        group: dict[str, Any] = self._optimizer.state_dict()["param_groups"][0]
        return group

    def next_step(self) -> float:
        """The number of the next update."""
        return next_step(self._optimizer.state[self._parameters[0]].get("step", 0), "the state")

    def step(self, gradients: Tensor) -> Tensor:
        """One step with these gradients, shape (n,): the rows `p m v vmax` after it."""
        for parameter, gradient in zip(self._parameters, gradients.split(self.sizes), strict=True):
            parameter.grad = gradient
        self._run()
        states = [self._optimizer.state[parameter] for parameter in self._parameters]
        after = (
            [parameter.detach() for parameter in self._parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state.get("max_exp_avg_sq", v_max) for state, v_max in zip(states, self._v_max, strict=True)],
        )
        return torch.stack([torch.cat(row) for row in after])


@dataclass(frozen=True)
class Predicted:
    """An implementation's op models with their constants."""

    implementation: Implementation
    options: StepOptions
    scalars: Scalars[float]

    @classmethod
    def of(cls, native: Native) -> Self:
        """What this package says `native` will do next."""
        hyperparameters = Hyperparameters.from_param_group(native.group, "param_groups[0]")
        implementation = implementation_for(native.group)
        scalars = implementation.scalars(hyperparameters, native.next_step())
        return cls(implementation, hyperparameters.options, scalars)

    def assign(self, sizes: Sequence[int], threads: int | None = None) -> Tensor:
        """The index of the op model that each element of the batch follows."""
        return torch.cat([self.implementation.assign(size, self.options, threads) for size in sizes])

    def step(self, domain: Domain[T], before: Tensor, assigned: Tensor) -> Tensor:
        """The rows `p m v vmax` after one step of each element's op model."""
        after = torch.empty(4, before.shape[1])
        for index, model in enumerate(self.implementation.models):
            where = assigned == index
            if bool(where.any()):
                after[:, where] = step_of(domain, model, self.options, self.scalars, before[:, where])
        return after

    def with_model(self, index: int, model: OpModel) -> Self:
        """The same with another op model in this place."""
        models = list(self.implementation.models)
        models[index] = model
        return replace(self, implementation=replace(self.implementation, models=tuple(models)))


def step_of(domain: Domain[T], model: OpModel, options: StepOptions, scalars: Scalars[float], before: Tensor) -> Tensor:
    """The rows `p m v vmax` after one step of one op model."""
    constants = Scalars(*(domain.op.constant(value) for value in scalars))
    p, g, m, v, v_max = (domain.enter(row.contiguous()) for row in before)
    result = make_step(domain.op, model, options)(p, g, m, v, v_max, constants)
    return torch.stack([domain.leave(row) for row in result])


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Where the bits of float32 tensors differ; one NaN is as good as another."""
    return (a.contiguous().view(torch.int32) != b.contiguous().view(torch.int32)) & ~(a.isnan() & b.isnan())


def check_steps(native: Native, before: Tensor, gradients: Sequence[Tensor], compared: Counter[str]) -> int:
    """Step torch and the op models side by side, and fail at the first difference.

    Args:
        native: torch's optimizer, holding `before`.
        before: rows `p g m v vmax`; the gradients there are not used.
        gradients: one row for each step.
        compared: where to count.

    Returns:
        How many values were compared.
    """
    count = 0
    for gradient in gradients:
        model = Predicted.of(native)
        assigned = model.assign(native.sizes)
        before = torch.stack((before[0], gradient, *before[2:]))
        after = native.step(gradient)
        for name, domain in DOMAINS.items():
            result = model.step(domain, before, assigned)
            wrong = differing(result, after)
            if bool(wrong.any()):
                raise AssertionError(explain(name, native, model, before, assigned, result, after))
            count += result.numel()
        before = torch.stack((after[0], gradient, *after[1:]))
    compared[f"torch.optim with op models ({native.setting.path})"] += count
    return count


class Operation(NamedTuple):
    """One operation that a step performed."""

    name: str
    operands: tuple[float, ...]
    result: float

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(hex_of, self.operands))}) = {hex_of(self.result)}"


class _Recorder:
    """NumPy's binary32, writing down each operation."""

    def __init__(self, trace: list[Operation]) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Callable[..., Array]:
        method = getattr(NUMPY.op, name)

        def recorded(*operands: Array) -> Array:
            result: Array = method(*operands)
            if name != "constant":
                values = tuple(float(np.reshape(operand, ())) for operand in operands)
                self._trace.append(Operation(name, values, float(np.reshape(result, ()))))
            return result

        return recorded


def trace_of(
    model: OpModel, options: StepOptions, scalars: Scalars[float], before: Tensor
) -> tuple[list[Operation], Tensor]:
    """The operations of one element's step, and its rows `p m v vmax`; `before` has shape (5, 1)."""
    trace: list[Operation] = []
    domain: Domain[Array] = NUMPY._replace(op=cast("Arithmetic[Array]", _Recorder(trace)))
    return trace, step_of(domain, model, options, scalars, before)


def alterations(model: OpModel) -> Iterator[tuple[str, OpModel]]:
    """The op model with one field changed, every way, and what was changed."""
    for field in fields(model):
        value = getattr(model, field.name)
        for choice in type(value) if isinstance(value, Enum) else ():
            if choice is not value:
                change: dict[str, Any] = {field.name: choice}
                yield f"{field.name}={choice}", replace(model, **change)


def explain(
    arithmetic: str, native: Native, model: Predicted, before: Tensor, assigned: Tensor, result: Tensor, after: Tensor
) -> str:
    """The first difference: inputs, both results and the op model's operations, in bits.

    Torch shows no operation, only results.  But where one field of the op model, changed, gives torch's result, the
    two traces part at an operation, which is named.
    """
    wrong = differing(result, after)
    i = int(wrong.any(dim=0).nonzero()[0])
    which, place = 0, i
    while place >= native.sizes[which]:
        place -= native.sizes[which]
        which += 1
    op_model = model.implementation.models[int(assigned[i])]
    element, truth = before[:, i : i + 1], after[:, i : i + 1]
    trace, _ = trace_of(op_model, model.options, model.scalars, element)
    lines = [
        f"{int(wrong.sum())} of {wrong.numel()} values differ",
        f"the first is element {place} of tensor {which}, which has {native.sizes[which]}",
        f"op model {op_model.name} in {arithmetic}; {native.setting}",
        *(f"  {name:<5}{hex_of(value)}" for name, value in zip(INPUTS, element[:, 0].tolist(), strict=True)),
        "results: op model, torch",
    ]
    for name, ours, theirs in zip(OUTPUTS, result[:, i].tolist(), truth[:, 0].tolist(), strict=True):
        lines.append(f"  {name:<5}{hex_of(ours)}  {hex_of(theirs)}")
    lines += ["constants", *(f"  {k:<13}{hex_of(x)}" for k, x in model.scalars._asdict().items())]
    lines += ["operations of the op model", *(f"  {operation}" for operation in trace)]
    for change, other in alterations(op_model):
        theirs_trace, theirs_result = trace_of(other, model.options, model.scalars, element)
        if not bool(differing(theirs_result, truth).any()):
            part = next((pair for pair in zip(trace, theirs_trace, strict=False) if str(pair[0]) != str(pair[1])), None)
            lines.append(f"with {change} the result is torch's; the traces part at")
            lines += [f"  {operation}" for operation in part or ()]
            break
    else:
        lines.append("no change of one field gives torch's result")
    return "\n".join(lines)
