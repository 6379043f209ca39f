"""The choice space: for each quantity of a step, every way to compute it that op models and constants allow.

Quantities are taken one after the other, each given the *observed* values of those before it, so that the space is a
sum and not a product: the new moments from the inputs, then the new parameter from the moments as the kernel left
them.  Options (decay, amsgrad, maximize) are quantities of their own, on top of what the plain step left possible.

Claimed: every value comes from `adam.make_step`; here is no formula.  Trusted: `TorchBinary32`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import product

import torch
from torch import Tensor

from guarded_moments.oracle.identify.rules import RULES, Rule, interpolates_from_end
from guarded_moments.oracle.identify.setting import Setting
from guarded_moments.reference.adam import Decay, Scalars, StepOptions, StepResult, make_step
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.op_models import (
    Correction,
    DecoupledDecay,
    FromEnd,
    Interpolation,
    L2Decay,
    Maximum,
    OpModel,
    SecondMoment,
    SquareRoot,
    Update,
)


class Quantity(Enum):
    """What is identified by itself, in this order; the value is its name in reports."""

    FIRST_MOMENT = "m'"
    SECOND_MOMENT = "v'"
    PARAMETER = "p' given m', v'"
    GRADIENT_DECAY = "g with weight decay"
    PARAMETER_DECAY = "p with weight decay"
    MAXIMIZE = "g to maximize"
    LARGEST = "vmax' given v'"
    AMSGRAD_ROOT = "p' given m', v', vmax'"

    @property
    def row(self) -> int:
        """The row of the outputs it is read from: `p m v vmax`."""
        return _ROWS[self]


_ROWS = {
    Quantity.FIRST_MOMENT: 1,
    Quantity.SECOND_MOMENT: 2,
    Quantity.PARAMETER: 0,
    Quantity.GRADIENT_DECAY: 1,
    Quantity.PARAMETER_DECAY: 0,
    Quantity.MAXIMIZE: 1,
    Quantity.LARGEST: 3,
    Quantity.AMSGRAD_ROOT: 0,
}
_FROM_INPUTS = {Quantity.FIRST_MOMENT, Quantity.SECOND_MOMENT, Quantity.GRADIENT_DECAY, Quantity.MAXIMIZE}

#: Fields of an op model that each quantity of the plain step depends on, with the choices for each.
CHOICES: dict[Quantity, dict[str, type[Enum]]] = {
    Quantity.FIRST_MOMENT: {"interpolation": Interpolation, "from_end": FromEnd},
    Quantity.SECOND_MOMENT: {"second_moment": SecondMoment},
    Quantity.PARAMETER: {"square_root": SquareRoot, "correction": Correction, "update": Update},
}

#: An op model to change: its moments leave `m` and `v` as they are when fed as `_left_alone` does.
_BASE = OpModel(
    name="",
    interpolation=Interpolation.FMA_TWICE,
    from_end=FromEnd.SUBTRACTED,
    second_moment=SecondMoment.SEPARATE,
    square_root=SquareRoot.CORRECT,
    correction=Correction.DIVIDE,
    update=Update.MULTIPLY_THEN_DIVIDE,
    maximum=Maximum.TIE_FIRST,
    l2_decay=L2Decay.SEPARATE,
    decoupled_decay=DecoupledDecay.MULTIPLY,
)


@dataclass(frozen=True)
class Candidate:
    """One way to compute a quantity: some fields of an op model, a rule for the constants, and which options act."""

    choices: tuple[tuple[str, Enum], ...]
    rule: Rule
    decay: Decay = Decay.NONE
    amsgrad: bool = False
    maximize: bool = False

    @property
    def model(self) -> OpModel:
        """An op model with these choices; its other fields mean nothing."""
        return _model(self.choices)

    def options(self, setting: Setting) -> StepOptions:
        """The per-tensor choices of its step."""
        return StepOptions(interpolates_from_end(self.rule, setting), self.decay, self.amsgrad, self.maximize)

    def scalars(self, setting: Setting) -> Scalars[float]:
        """The constants of its step."""
        return self.rule.scalars(setting, self.model.correction)

    def merged(self, **fields: object) -> Candidate:
        """The same with other values of its own fields."""
        return replace(self, **fields)  # type: ignore[arg-type]  # fields of this class, by name


@cache
def _model(choices: tuple[tuple[str, Enum], ...]) -> OpModel:
    return replace(_BASE, **dict(choices))  # type: ignore[arg-type]  # fields of an op model, by name


def plain_candidates(quantity: Quantity) -> list[Candidate]:
    """Every candidate for a quantity of the plain step."""
    fields = CHOICES[quantity]
    return [
        Candidate(tuple(zip(fields, values, strict=True)), rule)
        for values, rule in product(product(*fields.values()), RULES)
    ]


def with_decay(bases: Iterable[Candidate], quantity: Quantity) -> list[Candidate]:
    """Candidates with weight decay in each form that touches the quantity, and without."""
    gradient = quantity is Quantity.GRADIENT_DECAY
    decay = Decay.L2 if gradient else Decay.DECOUPLED
    field, choices = ("l2_decay", L2Decay) if gradient else ("decoupled_decay", DecoupledDecay)
    return [
        changed
        for base in bases
        for changed in (
            base,
            *(base.merged(choices=(*base.choices, (field, choice)), decay=decay) for choice in choices),
        )
    ]


def to_maximize(bases: Iterable[Candidate]) -> list[Candidate]:
    """Candidates with the gradient negated, and not."""
    return [base.merged(maximize=maximize) for base in bases for maximize in (True, False)]


def largest_candidates() -> list[Candidate]:
    """Every way to keep the largest second moment, and not to."""
    kept = [Candidate((("maximum", choice),), RULES[0], amsgrad=True) for choice in Maximum]
    return [*kept, Candidate((), RULES[0])]


def with_amsgrad_root(bases: Iterable[Candidate]) -> list[Candidate]:
    """Candidates that take the root of the largest second moment, and of the new one."""
    return [base.merged(amsgrad=amsgrad) for base in bases for amsgrad in (True, False)]


def key_of(candidate: Candidate, setting: Setting) -> object:
    """What the candidate's values depend on: equal keys, equal values."""
    return candidate.choices, candidate.scalars(setting), candidate.options(setting)


def evaluate(quantity: Quantity, candidate: Candidate, setting: Setting, inputs: Tensor, outputs: Tensor) -> Tensor:
    """The quantity by a candidate, shape (n,).

    Args:
        quantity: what to compute.
        candidate: how.
        setting: under which hyperparameters.
        inputs: rows `p g m v vmax`.
        outputs: rows `p m v vmax` as the kernel left them; of these only what comes before the quantity is used.
    """
    scalars, options = candidate.scalars(setting), candidate.options(setting)
    if quantity in _FROM_INPUTS:
        result = step_of(candidate.model, options, scalars, inputs)
        return result.v if quantity is Quantity.SECOND_MOMENT else result.m
    if quantity is Quantity.LARGEST:
        return _left_alone(candidate.model, options, scalars, inputs, outputs[1], outputs[2]).v_max
    under_root = outputs[3] if candidate.amsgrad else outputs[2]
    return _left_alone(candidate.model, replace(options, amsgrad=False), scalars, inputs, outputs[1], under_root).p


def step_of(model: OpModel, options: StepOptions, scalars: Scalars[float], inputs: Tensor) -> StepResult[Tensor]:
    """One step of an op model on rows `p g m v vmax`."""
    op = TorchBinary32()
    constants: Scalars[Tensor] = Scalars(*(op.constant(value) for value in scalars))
    p, g, m, v, v_max = inputs
    return make_step(op, model, options)(p, g, m, v, v_max, constants)


def _left_alone(
    model: OpModel, options: StepOptions, scalars: Scalars[float], inputs: Tensor, m: Tensor, v: Tensor
) -> StepResult[Tensor]:
    """A step whose new moments are `m` and `v` themselves, bit for bit, so that only what follows them is computed.

    With a gradient of -0 and these constants the moments are `fma(-1, -m, fma(1, -0, -0))` and `v*1 + (-1 * -0) * -0`:
    each `x + -0`, which is `x` for every `x`, zeros of both signs included.
    """
    model = replace(model, interpolation=Interpolation.FMA_TWICE, second_moment=SecondMoment.SEPARATE)
    scalars = scalars._replace(beta1=-1.0, beta2=1.0, c=-1.0)
    decay = options.decay if options.decay is Decay.DECOUPLED else Decay.NONE
    options = replace(options, decay=decay, maximize=False)
    rows = torch.stack((inputs[0], torch.full_like(m, -0.0), -m, v, inputs[4]))
    return step_of(model, options, scalars, rows)
