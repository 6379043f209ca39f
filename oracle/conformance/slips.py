"""Which slip explains a wrong update: the op model with one choice changed that gives the backend's own bits.

A wrong update says little; "the answers are those of `fma(c*g, g, v*beta2)` where `fma(c, g*g, v*beta2)` is asked"
says what to look for, and gives a second trace to set beside the first.

Claimed: a slip that is named gives the backend's answers, bit for bit, on the inputs that it was asked about.  Not
claimed: that the backend computes so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.inputs import same_numbers
from guarded_moments.oracle.conformance.other_roundings import OtherRounding, Rounding
from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.arithmetic.protocol import Arithmetic
from guarded_moments.reference.floats import round_to_binary32
from guarded_moments.reference.op_models import (
    Correction,
    FromEnd,
    Interpolation,
    OpModel,
    SecondMoment,
    SquareRoot,
    Update,
)

_CHOICES: dict[str, type[Enum]] = {
    "interpolation": Interpolation,
    "from_end": FromEnd,
    "second_moment": SecondMoment,
    "square_root": SquareRoot,
    "correction": Correction,
    "update": Update,
}
_SMALLEST_NORMAL = 2.0**-126
_EXPLAINED = 64  #: wrong answers that a slip must give


@dataclass(frozen=True)
class Step:
    """A first update: an op model with its constants."""

    model: OpModel
    options: StepOptions
    scalars: Scalars[float]
    rounding: Rounding | None = None  #: None is to nearest, ties to even

    @property
    def arithmetic(self) -> Arithmetic[Any]:
        """What it is computed in."""
        return NumpyBinary32() if self.rounding is None else OtherRounding(self.rounding)

    def updates(self, rows: Tensor) -> Tensor:
        """The updates of rows `(m, v, g)`, in NumPy: float32, or float64 where the update is an exact product."""
        op = self.arithmetic
        held = Scalars(*(op.constant(value) for value in self.scalars))
        m, v, g = (column.numpy() for column in rows.T.contiguous())
        return torch.from_numpy(make_update(op, self.model, self.options)(m, v, g, held))


@dataclass(frozen=True)
class Slip:
    """One thing done otherwise."""

    words: str
    step: Step
    before: Callable[[Tensor], Tensor]  #: what happens to inputs first
    after: Callable[[Tensor], Tensor]  #: ... and to updates last

    def updates(self, rows: Tensor) -> Tensor:
        """What a backend with this slip answers."""
        return self.after(self.step.updates(self.before(rows)))


def explaining(asked: Step, rows: Tensor, answers: Tensor) -> Slip | None:
    """The first slip that gives all the answers, or None.

    Args:
        asked: what should have been computed.
        rows: `(m, v, g)`, float32, shape (n, 3): inputs whose answers are wrong.
        answers: of the backend, shape (n,).
    """
    rows, answers = rows[:_EXPLAINED], answers[:_EXPLAINED]
    for slip in slips_of(asked):
        found = slip.updates(rows)
        if found.dtype is answers.dtype and bool(same_numbers(found, answers).all()):
            return slip
    return None


def slips_of(asked: Step) -> Iterator[Slip]:
    """Every way to do one thing otherwise that is known here."""
    for name, choices in _CHOICES.items():
        right: Any = getattr(asked.model, name)
        for other in choices:
            if other is not right:
                changed: dict[str, Any] = {name: other}
                step = replace(asked, model=replace(asked.model, **changed))
                yield Slip(f"`{other.value}` where the op model has `{right.value}`", step, _same, _same)
    for rounding in Rounding:
        yield Slip(rounding.value, replace(asked, rounding=rounding), _same, _same)
    for words, scalars in _constants(asked.scalars):
        yield Slip(words, replace(asked, scalars=scalars), _same, _same)
    yield Slip("subnormal inputs taken for zero", asked, _flushed, _same)
    yield Slip("subnormal results taken for zero", asked, _same, _flushed)
    yield Slip("subnormal inputs and results taken for zero", asked, _flushed, _flushed)


def _constants(k: Scalars[float]) -> Iterator[tuple[str, Scalars[float]]]:
    """Constants as they are often formed."""
    yield "1 - f32(beta2) in place of f32(1 - beta2)", k._replace(c=round_to_binary32(1 - k.beta2))
    yield "1 - f32(beta1) in place of f32(1 - beta1)", k._replace(w=round_to_binary32(1 - k.beta1))
    yield "no correction of the root's bias", k._replace(root=1.0)
    yield "a step size of the other sign", k._replace(step=-k.step)
    yield "no eps", k._replace(eps=0.0)


def _same(values: Tensor) -> Tensor:
    return values


def _flushed(values: Tensor) -> Tensor:
    return torch.where(values.abs() < _SMALLEST_NORMAL, torch.copysign(torch.zeros_like(values), values), values)
