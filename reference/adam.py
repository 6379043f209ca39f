"""The Adam step, once.

Every kind of evidence is this source run in another arithmetic.  The sequence of `torch.optim.Adam` and `AdamW`:

    g  = -g                       if maximize
    p  = p * f32(1 - lr*wd)       decoupled decay        or  g = g + f32(wd)*p      L2 decay
    m' = m + w*(g - m)            w = f32(1 - beta1);    for w >= 1/2 written from the other end
    v' = beta2*v + c*g*g          c = f32(1 - beta2)
    x  = max(vmax, v')            amsgrad only
    U  = (step * m') / (sqrt(x) / f32(sqrt(bc2)) + eps)  step = f32(-lr/bc1)
    p' = p + U

Each operation is one rounding; which products are fused is the op model's choice.  Source of the formulas:
`torch/optim/adam.py` and the kernels of torch 2.13.0; established by measurement (see `op_models`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from guarded_moments.reference.arithmetic.protocol import Arithmetic
from guarded_moments.reference.op_models import FromEnd, Implementation, Maximum, OpModel, SecondMoment, SquareRoot

T = TypeVar("T")


class Decay(Enum):
    """Where weight decay enters."""

    NONE = "none"
    L2 = "L2"  #: added to the gradient: Adam
    DECOUPLED = "decoupled"  #: shrinks the parameter: AdamW


@dataclass(frozen=True)
class StepOptions:
    """What is decided once per tensor, before any element is touched."""

    interpolate_from_end: bool = False  #: `w >= 1/2`
    decay: Decay = Decay.NONE
    amsgrad: bool = False
    maximize: bool = False


class Scalars(NamedTuple, Generic[T]):
    """The constants a kernel holds, each rounded once to binary32.  All are dimensionless but `step`."""

    w: T  #: f32(1 - beta1), weight of the gradient in m'
    c: T  #: f32(1 - beta2), weight of the squared gradient in v'
    beta2: T  #: f32(beta2)
    root: T  #: f32(sqrt(1 - beta2**t))
    eps: T  #: f32(eps), in units of the gradient
    step: T  #: f32(-lr / (1 - beta1**t)), in units of the parameter
    w_minus_one: T  #: w - 1, exact where it is used
    one_minus_w: T  #: 1 - w, exact where it is used
    shrink: T  #: f32(1 - lr*wd), decoupled decay
    weight_decay: T  #: f32(wd), L2 decay


class StepResult(NamedTuple, Generic[T]):
    """What one step leaves behind."""

    p: T
    m: T
    v: T
    v_max: T


def update_regions(
    implementation: Implementation, options: StepOptions, numel: int
) -> list[tuple[OpModel, torch.Tensor]]:
    """Which op model the update of each element follows: pairs of a model and a bool mask, each element in one.

    Body and tail are one region where they differ only in what `options` leaves unused.
    """
    body, tail = implementation.body, implementation.tail
    unused: dict[str, Any] = {"name": body.name, "maximum": body.maximum, "fused_l2_decay": body.fused_l2_decay}
    if not options.interpolate_from_end:
        unused["from_end"] = body.from_end
    if replace(tail, **unused) == body:
        return [(body, torch.ones(numel, dtype=torch.bool))]
    in_tail = implementation.tail_mask(numel)
    return [(body, ~in_tail), (tail, in_tail)]


def make_moments(
    op: Arithmetic[T], model: OpModel, options: StepOptions
) -> Callable[[T, T, T, Scalars[T]], tuple[T, T]]:
    """Build `moments(m, v, g, scalars) -> (m', v')` for the gradient `g` as it enters the moments."""
    add, sub, mul, fma = op.add, op.sub, op.mul, op.fma
    fused = model.fused_interpolation
    scaled = model.from_end is FromEnd.SCALED
    second = model.second_moment

    def first_moment(m: T, g: T, k: Scalars[T]) -> T:
        d = sub(g, m)
        if not options.interpolate_from_end:
            return fma(k.w, d, m) if fused else add(m, mul(k.w, d))
        if scaled:
            return fma(k.w_minus_one, d, g) if fused else add(mul(k.w_minus_one, d), g)
        return fma(op.negate(d), k.one_minus_w, g) if fused else sub(g, mul(d, k.one_minus_w))

    def second_moment(v: T, g: T, k: Scalars[T]) -> T:
        if second is SecondMoment.SEPARATE:
            return add(mul(v, k.beta2), mul(mul(k.c, g), g))
        if second is SecondMoment.FMA_PRODUCT:
            return fma(mul(k.c, g), g, mul(v, k.beta2))
        return fma(v, k.beta2, mul(mul(k.c, g), g))

    def moments(m: T, v: T, g: T, k: Scalars[T]) -> tuple[T, T]:
        return first_moment(m, g, k), second_moment(v, g, k)

    return moments


def make_increment(op: Arithmetic[T], model: OpModel) -> Callable[[T, T, Scalars[T]], T]:
    """Build `increment(m', x, scalars) -> U`, the update that the new moments add to the parameter."""
    root = op.platform_sqrt if model.square_root is SquareRoot.PLATFORM else op.sqrt

    def increment(m: T, x: T, k: Scalars[T]) -> T:
        denominator = op.add(op.div(root(x), k.root), k.eps)
        return op.div(op.mul(k.step, m), denominator)

    return increment


def make_update(op: Arithmetic[T], model: OpModel, options: StepOptions) -> Callable[[T, T, T, Scalars[T]], T]:
    """Build `update(m, v, g, scalars) -> U`: what one step adds to the parameter before the parameter is rounded.

    The update the guarantee is about: `g` is the gradient as it enters the moments.
    """
    moments = make_moments(op, model, options)
    increment = make_increment(op, model)

    def update(m: T, v: T, g: T, k: Scalars[T]) -> T:
        m, v = moments(m, v, g, k)
        return increment(m, v, k)

    return update


def make_step(
    op: Arithmetic[T], model: OpModel, options: StepOptions
) -> Callable[[T, T, T, T, T, Scalars[T]], StepResult[T]]:
    """Build `step(p, g, m, v, v_max, scalars) -> StepResult`: the whole step, parameter included.

    `v_max` is read and written only with amsgrad, and passed through otherwise.
    """
    moments = make_moments(op, model, options)
    increment = make_increment(op, model)

    def effective_gradient(p: T, g: T, k: Scalars[T]) -> T:
        if options.maximize:
            g = op.negate(g)
        if options.decay is Decay.L2:
            g = op.fma(p, k.weight_decay, g) if model.fused_l2_decay else op.add(g, op.mul(p, k.weight_decay))
        return g

    def largest(v_max: T, v: T) -> T:
        if model.maximum is Maximum.NAN_LOST:
            return op.select_less(v_max, v, v, v_max)
        if model.maximum is Maximum.TIE_SECOND:
            kept = op.select_less(v, v_max, v_max, v)
        else:
            kept = op.select_less(v_max, v, v, v_max)
        return op.select_nan(v_max, v_max, op.select_nan(v, v, kept))

    def step(p: T, g: T, m: T, v: T, v_max: T, k: Scalars[T]) -> StepResult[T]:
        g = effective_gradient(p, g, k)
        if options.decay is Decay.DECOUPLED:
            p = op.mul(p, k.shrink)
        m, v = moments(m, v, g, k)
        v_max = largest(v_max, v) if options.amsgrad else v_max
        return StepResult(op.add(p, increment(m, v_max if options.amsgrad else v, k)), m, v, v_max)

    return step
