"""Whole steps: does this assignment of op models to elements reproduce every value that the kernel gave?

Claimed: no failure means that each parameter and moment of each record, and with amsgrad each largest second moment,
has the op models' bits, one NaN being as good as another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from guarded_moments.oracle.identify.candidates import step_of
from guarded_moments.oracle.identify.experiment import Record
from guarded_moments.oracle.identify.rules import Rule, interpolates_from_end
from guarded_moments.oracle.identify.separate import agree
from guarded_moments.oracle.identify.setting import Setting
from guarded_moments.oracle.identify.subject import INPUTS, OUTPUTS
from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.implementations import Implementation
from guarded_moments.reference.op_models import OpModel

#: From the sizes of some tensors and the per-tensor choices to the part of each element, tensor after tensor.
Parts = Callable[[tuple[int, ...], StepOptions], Tensor]


@dataclass(frozen=True)
class Acts:
    """Which options change what the kernel does, and how."""

    decay: Decay = Decay.NONE
    amsgrad: bool = True
    maximize: bool = True

    def options(self, rule: Rule, setting: Setting) -> StepOptions:
        """The per-tensor choices in a setting."""
        return StepOptions(
            interpolate_from_end=interpolates_from_end(rule, setting),
            decay=self.decay if setting.weight_decay else Decay.NONE,
            amsgrad=self.amsgrad and setting.amsgrad,
            maximize=self.maximize and setting.maximize,
        )


@dataclass(frozen=True)
class Failure:
    """A setting in which an assignment of op models does not reproduce a kernel, and one element."""

    setting: Setting
    differing: int  #: values
    values: int  #: compared in this setting
    row: str  #: of the example: `p`, `m`, `v` or `vmax`
    example: dict[str, float]  #: its inputs
    expected: float
    observed: float


@dataclass(frozen=True)
class Proposal:
    """An op model for each element."""

    models: Sequence[OpModel]
    parts: Parts
    rule: Rule
    acts: Acts

    @classmethod
    def of(cls, implementation: Implementation, rule: Rule, acts: Acts, threads: int) -> Proposal:
        """A known implementation in a run with so many threads, with its constants formed by this rule."""

        def parts(sizes: tuple[int, ...], options: StepOptions) -> Tensor:
            known = {size: implementation.assign(size, options, threads) for size in set(sizes)}
            return torch.cat([known[size] for size in sizes])

        return cls(implementation.models, parts, rule, acts)

    def predict(self, setting: Setting, sizes: tuple[int, ...], inputs: Tensor) -> Tensor:
        """Rows `p m v vmax` after one step on tensors of these sizes, one after the other."""
        options = self.acts.options(self.rule, setting)
        part = self.parts(sizes, options)
        after = torch.empty(4, inputs.shape[1])
        for number, model in enumerate(self.models):
            where = part == number
            if bool(where.any()):
                scalars = self.rule.scalars(setting, model.correction)
                after[:, where] = torch.stack(list(step_of(model, options, scalars, inputs[:, where])))
        return after

    def failure(self, records: Iterable[Record]) -> Failure | None:
        """The first record that it does not reproduce."""
        for record in records:
            predicted = self.predict(record.setting, record.calls, record.inputs)
            wrong = ~agree(predicted, record.outputs)
            wrong[3] &= record.setting.amsgrad
            if bool(wrong.any()):
                row, index = (int(i) for i in wrong.t().nonzero()[0].flip(0))
                inputs = record.inputs[:, index].tolist()
                return Failure(
                    setting=record.setting,
                    differing=int(wrong.sum()),
                    values=record.values,
                    row=OUTPUTS[row],
                    example=dict(zip(INPUTS, inputs, strict=True)),
                    expected=float(predicted[row, index]),
                    observed=float(record.outputs[row, index]),
                )
        return None
