"""How a kernel differs from the candidate that comes closest: in how many elements, by how many ulps, and where first.

Claimed: the trace is of the one step, `adam.make_step`, on an input at which the kernel's result differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.identify.candidates import Candidate, Quantity, evaluate, step_of
from guarded_moments.oracle.identify.experiment import Record
from guarded_moments.oracle.identify.separate import agree, ulps
from guarded_moments.oracle.identify.setting import Setting
from guarded_moments.oracle.identify.subject import INPUTS
from guarded_moments.oracle.tracing import Operation, trace_step
from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.op_models import OpModel

#: The best candidate for each quantity examined; those of the plain step are always among them.
Closest = Mapping[Quantity, Candidate]


@dataclass(frozen=True)
class Difference:
    """A quantity that no candidate reproduces, beside the closest one."""

    quantity: Quantity
    closest: Candidate
    elements: int  #: compared, as training leaves them
    differing: int  #: of these
    median_ulps: int  #: of those that differ; -1 where one side is NaN
    largest_ulps: int
    setting: Setting  #: of the example
    example: dict[str, float]  #: inputs of one element that differs
    expected: float
    observed: float
    operation: str  #: whose result differs
    trace: tuple[Operation, ...]  #: of the closest op model, up to that result


def difference(quantity: Quantity, closest: Closest, pools: Sequence[Record], probes: Sequence[Record]) -> Difference:
    """Compare the closest candidate with what the kernel gave on its pools.

    Args:
        quantity: that it does not reproduce.
        closest: the best candidate for each quantity examined.
        pools: of the settings to which the quantity belongs, the first half of each as training leaves it.
        probes: records that may hold an example where the pools do not.
    """
    candidate = closest[quantity]
    far, count = [], 0
    examples: list[_Example] = []
    for number, record in enumerate((*pools, *probes)):
        values = evaluate(quantity, candidate, record.setting, record.inputs, record.outputs)
        observed = record.outputs[quantity.row]
        wrong = ~agree(values, observed)
        if number < len(pools):
            half = len(values) // 2
            count += half
            far.append(ulps(values[:half], observed[:half])[wrong[:half]])
        examples += _example(record, closest, values, wrong)
    _, record, index, expected = min(examples, key=lambda example: example.rank)
    distances = torch.cat(far)
    inputs = dict(zip(INPUTS, record.inputs[:, index].tolist(), strict=True))
    trace, formula = _trace(quantity, closest, record, index)
    return Difference(
        quantity=quantity,
        closest=candidate,
        elements=count,
        differing=len(distances),
        median_ulps=int(distances.median()) if len(distances) else 0,
        largest_ulps=int(distances.max()) if len(distances) else 0,
        setting=record.setting,
        example=inputs if record.setting.amsgrad else {name: inputs[name] for name in INPUTS[:4]},
        expected=expected,
        observed=float(record.outputs[quantity.row, index]),
        operation=formula,
        trace=trace,
    )


class _Example(NamedTuple):
    """An element that differs; the best have the lowest rank."""

    rank: int
    record: Record
    place: int  #: of the element in the record
    expected: float


def _example(record: Record, closest: Closest, values: Tensor, wrong: Tensor) -> list[_Example]:
    """The most telling element of a record that differs, if any does.

    Best is one where the moments are the closest op model's, so that its trace leads to the difference, and finite.
    """
    observed = record.outputs
    model = closest_model(closest)
    options = closest[Quantity.FIRST_MOMENT].options(record.setting)
    result = step_of(model, options, _scalars(closest, record.setting), record.inputs)
    led_to = agree(result.m, observed[1]) & agree(result.v, observed[2])
    finite = torch.cat((record.inputs, observed)).isfinite().all(dim=0) & values.isfinite()
    for rank, mask in enumerate((wrong & led_to & finite, wrong & led_to, wrong & finite, wrong)):
        if bool(mask.any()):
            index = int(mask.nonzero()[0, 0])
            return [_Example(rank, record, index, float(values[index]))]
    return []


def closest_model(closest: Closest) -> OpModel:
    """The op model of the best candidate for each quantity; fields of quantities not examined mean nothing."""
    choices = {name: choice for candidate in closest.values() for name, choice in candidate.choices}
    return replace(next(iter(closest.values())).model, name="closest", **choices)  # type: ignore[arg-type]  # its fields


def _scalars(closest: Closest, setting: Setting) -> Scalars[float]:
    """Each constant by the rule of the candidate that uses it."""
    correction = closest_model(closest).correction
    first, second, last = (
        closest[quantity].rule.scalars(setting, correction)
        for quantity in (Quantity.FIRST_MOMENT, Quantity.SECOND_MOMENT, Quantity.PARAMETER)
    )
    return last._replace(
        w=first.w,
        beta1=first.beta1,
        w_minus_one=first.w_minus_one,
        one_minus_w=first.one_minus_w,
        c=second.c,
        beta2=second.beta2,
    )


def _trace(quantity: Quantity, closest: Closest, record: Record, index: int) -> tuple[tuple[Operation, ...], str]:
    """The operations of a step up to the quantity's, and that operation's formula."""
    operations, result = trace_step(
        closest_model(closest),
        closest[quantity].options(record.setting),
        _scalars(closest, record.setting),
        dict(zip(INPUTS, record.inputs[:, index].tolist(), strict=True)),
    )
    last = result[quantity.row].name
    names = [operation.name for operation in operations]
    if last not in names:  # a value that was only chosen, such as the largest second moment
        return tuple(operations), last
    until = names.index(last) + 1
    return tuple(operations[:until]), operations[until - 1].formula
