"""The Adam step, once.

Every kind of evidence is this source run in another arithmetic.  The sequence of `torch.optim.Adam` and `AdamW`:

    g  = -g                       if maximize
    p  = p * f32(1 - lr*wd)       decoupled decay        or  g = g + f32(wd)*p      L2 decay
    m' = m + w*(g - m)            w = f32(1 - beta1);    for w >= 1/2 written from the other end
    v' = beta2*v + c*g*g          c = f32(1 - beta2)
    x  = max(vmax, v')            amsgrad only
    U  = (step * m') / (sqrt(x) / f32(sqrt(bc2)) + eps)  step = f32(-lr/bc1)
    p' = p + U

Each operation is one rounding; which products are fused and what is divided first is the op model's choice.  Source of
the formulas: `torch/optim/adam.py` and the kernels of torch 2.13.0; established by measurement (see `implementations`).

The builders take a `jit`: the functions they return are plain scalar code over the arithmetic's operations, with every
choice made before, so that a compiler of Python (numba) turns this very source into machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from guarded_moments.reference.arithmetic.protocol import Arithmetic
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

T = TypeVar("T")
Jit = Callable[[Any], Any]


def as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """The `jit` that compiles nothing."""
    return function


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
    """The constants a kernel holds, each rounded to binary32.  All are dimensionless unless said."""

    w: T  #: f32(1 - beta1), weight of the gradient in m'
    c: T  #: f32(1 - beta2), weight of the squared gradient in v'
    beta1: T  #: f32(beta1)
    beta2: T  #: f32(beta2)
    root: T  #: corrects the root of v': its divisor or factor, as the op model says
    eps: T  #: added to the corrected root, in units of the gradient (for `QUOTIENT`, over the step size)
    step: T  #: -lr / (1 - beta1**t), rounded as `Constants` say, in units of the parameter (unused for `QUOTIENT`)
    w_minus_one: T  #: w - 1, exact where it is used
    one_minus_w: T  #: 1 - w, exact where it is used
    shrink: T  #: f32(1 - lr*wd), decoupled decay
    decay_product: T  #: f32(lr)*f32(wd), decoupled decay of CUDA's fused kernel
    weight_decay: T  #: f32(wd), L2 decay


class StepResult(NamedTuple, Generic[T]):
    """What one step leaves behind."""

    p: T
    m: T
    v: T
    v_max: T


def _make_first_moment(  # noqa: C901 - one branch a written form, chosen before anything is compiled
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit
) -> Callable[..., T]:
    add, sub, mul, fma, negate = op.add, op.sub, op.mul, op.fma, op.negate

    if model.interpolation is Interpolation.FMA_TWICE:

        def first_moment(m: T, g: T, k: Scalars[T]) -> T:
            return fma(k.beta1, m, fma(negate(k.beta1), g, g))
    elif not options.interpolate_from_end:
        if model.interpolation is Interpolation.FMA:

            def first_moment(m: T, g: T, k: Scalars[T]) -> T:
                return fma(k.w, sub(g, m), m)
        else:

            def first_moment(m: T, g: T, k: Scalars[T]) -> T:
                return add(m, mul(k.w, sub(g, m)))
    elif model.from_end is FromEnd.SCALED:
        if model.interpolation is Interpolation.FMA:

            def first_moment(m: T, g: T, k: Scalars[T]) -> T:
                return fma(k.w_minus_one, sub(g, m), g)
        else:

            def first_moment(m: T, g: T, k: Scalars[T]) -> T:
                return add(mul(k.w_minus_one, sub(g, m)), g)
    elif model.interpolation is Interpolation.FMA:

        def first_moment(m: T, g: T, k: Scalars[T]) -> T:
            return fma(negate(sub(g, m)), k.one_minus_w, g)
    else:

        def first_moment(m: T, g: T, k: Scalars[T]) -> T:
            return sub(g, mul(sub(g, m), k.one_minus_w))

    result: Callable[..., T] = jit(first_moment)
    return result


def _make_second_moment(  # noqa: C901 - one branch a written form, as above
    op: Arithmetic[T], model: OpModel, jit: Jit
) -> Callable[..., T]:
    add, mul, fma, negate = op.add, op.mul, op.fma, op.negate

    if model.second_moment is SecondMoment.SEPARATE:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            return add(mul(v, k.beta2), mul(mul(k.c, g), g))
    elif model.second_moment is SecondMoment.SEPARATE_SQUARE:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            return add(mul(v, k.beta2), mul(k.c, mul(g, g)))
    elif model.second_moment is SecondMoment.FMA_PRODUCT:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            return fma(mul(k.c, g), g, mul(v, k.beta2))
    elif model.second_moment is SecondMoment.FMA_DECAY:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            return fma(v, k.beta2, mul(mul(k.c, g), g))
    elif model.second_moment is SecondMoment.FMA_SQUARE:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            return fma(k.c, mul(g, g), mul(v, k.beta2))
    else:

        def second_moment(v: T, g: T, k: Scalars[T]) -> T:
            square = mul(g, g)
            return fma(k.beta2, v, fma(negate(k.beta2), square, square))

    result: Callable[..., T] = jit(second_moment)
    return result


def make_moments(
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit = as_is
) -> Callable[[T, T, T, Scalars[T]], tuple[T, T]]:
    """Build `moments(m, v, g, scalars) -> (m', v')` for the gradient `g` as it enters the moments."""
    first_moment = _make_first_moment(op, model, options, jit)
    second_moment = _make_second_moment(op, model, jit)

    def moments(m: T, v: T, g: T, k: Scalars[T]) -> tuple[T, T]:
        return first_moment(m, g, k), second_moment(v, g, k)

    result: Callable[[T, T, T, Scalars[T]], tuple[T, T]] = jit(moments)
    return result


def make_root(op: Arithmetic[T], model: OpModel) -> Callable[[T], T]:
    """The op model's square root."""
    return op.platform_sqrt if model.square_root is SquareRoot.PLATFORM else op.sqrt


def make_denominator(op: Arithmetic[T], model: OpModel, jit: Jit = as_is) -> Callable[[T, Scalars[T]], T]:
    """Build `denominator(sqrt(v'), scalars)`."""
    add = op.add
    correct = op.div if model.correction is Correction.DIVIDE else op.mul

    def denominator(root: T, k: Scalars[T]) -> T:
        return add(correct(root, k.root), k.eps)

    result: Callable[[T, Scalars[T]], T] = jit(denominator)
    return result


def make_increment(op: Arithmetic[T], model: OpModel, jit: Jit = as_is) -> Callable[[T, T, Scalars[T]], T]:
    """Build `increment(m', sqrt(v'), scalars) -> U`, the update that the new moments add to the parameter.

    Where the update is not rounded by itself (`DIVIDE_THEN_MULTIPLY`) it is the exact product `op.product`.
    """
    mul, div, product = op.mul, op.div, op.product
    denominator = make_denominator(op, model, jit)

    if model.update is Update.MULTIPLY_THEN_DIVIDE:

        def increment(m: T, root: T, k: Scalars[T]) -> T:
            return div(mul(k.step, m), denominator(root, k))
    elif model.update is Update.DIVIDE_THEN_MULTIPLY:

        def increment(m: T, root: T, k: Scalars[T]) -> T:
            return product(k.step, div(m, denominator(root, k)))
    elif model.update is Update.DIVIDE_TWICE:

        def increment(m: T, root: T, k: Scalars[T]) -> T:
            return div(m, div(denominator(root, k), k.step))
    else:

        def increment(m: T, root: T, k: Scalars[T]) -> T:
            return div(m, denominator(root, k))

    result: Callable[[T, T, Scalars[T]], T] = jit(increment)
    return result


def make_update(
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit = as_is
) -> Callable[[T, T, T, Scalars[T]], T]:
    """Build `update(m, v, g, scalars) -> U`: what one step adds to the parameter before the parameter is rounded.

    The update the guarantee is about: `g` is the gradient as it enters the moments.
    """
    moments = make_moments(op, model, options, jit)
    root, increment = make_root(op, model), make_increment(op, model, jit)

    def update(m: T, v: T, g: T, k: Scalars[T]) -> T:
        new_m, new_v = moments(m, v, g, k)
        return increment(new_m, root(new_v), k)

    result: Callable[[T, T, T, Scalars[T]], T] = jit(update)
    return result


def make_amsgrad_update(
    op: Arithmetic[T], model: OpModel, options: StepOptions
) -> Callable[[T, T, T, T, Scalars[T]], T]:
    """Build `update(m, v, v_max, g, scalars) -> U`: the same with amsgrad, which divides by the largest `v` so far."""
    moments, largest = make_moments(op, model, options), make_largest(op, model)
    root, increment = make_root(op, model), make_increment(op, model)

    def update(m: T, v: T, v_max: T, g: T, k: Scalars[T]) -> T:
        new_m, new_v = moments(m, v, g, k)
        return increment(new_m, root(largest(v_max, new_v)), k)

    return update


def make_largest(op: Arithmetic[T], model: OpModel) -> Callable[[T, T], T]:
    """Build `largest(v_max, v') -> v_max'`, amsgrad's largest second moment so far."""
    select_less, select_nan = op.select_less, op.select_nan

    def nan_lost(v_max: T, v: T) -> T:
        return select_less(v_max, v, v, v_max)

    def tie_to_new(v_max: T, v: T) -> T:
        return select_nan(v_max, v_max, select_nan(v, v, select_less(v, v_max, v_max, v)))

    def tie_to_old(v_max: T, v: T) -> T:
        return select_nan(v_max, v_max, select_nan(v, v, select_less(v_max, v, v, v_max)))

    if model.maximum is Maximum.NAN_LOST:
        return nan_lost
    return tie_to_new if model.maximum is Maximum.TIE_SECOND else tie_to_old


def make_effective_gradient(
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit = as_is
) -> Callable[[T, T, Scalars[T]], T]:
    """Build `effective_gradient(p, g, scalars)`: what enters the moments, after maximize and L2 decay."""
    add, mul, fma, negate = op.add, op.mul, op.fma, op.negate

    if options.maximize:

        def towards(g: T) -> T:
            return negate(g)
    else:

        def towards(g: T) -> T:
            return g

    signed: Callable[[T], T] = jit(towards)
    if options.decay is not Decay.L2:

        def effective_gradient(p: T, g: T, k: Scalars[T]) -> T:  # noqa: ARG001 - of one form with the others
            return signed(g)
    elif model.l2_decay is L2Decay.FMA:

        def effective_gradient(p: T, g: T, k: Scalars[T]) -> T:
            return fma(p, k.weight_decay, signed(g))
    else:

        def effective_gradient(p: T, g: T, k: Scalars[T]) -> T:
            return add(signed(g), mul(p, k.weight_decay))

    result: Callable[[T, T, Scalars[T]], T] = jit(effective_gradient)
    return result


def make_shrunk(
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit = as_is
) -> Callable[[T, Scalars[T]], T]:
    """Build `shrunk(p, scalars)`: the parameter that the update is added to, after decoupled decay."""
    mul, fma, negate = op.mul, op.fma, op.negate

    if options.decay is not Decay.DECOUPLED:

        def shrunk(p: T, k: Scalars[T]) -> T:  # noqa: ARG001 - of one form with the others
            return p
    elif model.decoupled_decay is DecoupledDecay.FMA_NEGATED:

        def shrunk(p: T, k: Scalars[T]) -> T:
            return fma(negate(k.decay_product), p, p)
    else:

        def shrunk(p: T, k: Scalars[T]) -> T:
            return mul(p, k.shrink)

    result: Callable[[T, Scalars[T]], T] = jit(shrunk)
    return result


def make_until_root(
    op: Arithmetic[T], model: OpModel, options: StepOptions, jit: Jit = as_is
) -> Callable[[T, T, T, T, Scalars[T]], tuple[T, T, T]]:
    """Build `until_root(p, g, m, v, scalars) -> (p, m', v')`: weight decay and new moments, what precedes the root."""
    effective_gradient = make_effective_gradient(op, model, options, jit)
    shrunk, moments = make_shrunk(op, model, options, jit), make_moments(op, model, options, jit)

    def until_root(p: T, g: T, m: T, v: T, k: Scalars[T]) -> tuple[T, T, T]:
        entering, kept = effective_gradient(p, g, k), shrunk(p, k)
        new_m, new_v = moments(m, v, entering, k)
        return kept, new_m, new_v

    result: Callable[[T, T, T, T, Scalars[T]], tuple[T, T, T]] = jit(until_root)
    return result


def make_from_root(op: Arithmetic[T], model: OpModel, jit: Jit = as_is) -> Callable[[T, T, T, Scalars[T]], T]:
    """Build `from_root(p, m', sqrt(v'), scalars) -> p'`: the update, added to the parameter."""
    add, div, fma = op.add, op.div, op.fma

    if model.rounds_update:
        increment = make_increment(op, model, jit)

        def from_root(p: T, m: T, root: T, k: Scalars[T]) -> T:
            return add(p, increment(m, root, k))
    else:
        denominator = make_denominator(op, model, jit)

        def from_root(p: T, m: T, root: T, k: Scalars[T]) -> T:
            return fma(k.step, div(m, denominator(root, k)), p)

    result: Callable[[T, T, T, Scalars[T]], T] = jit(from_root)
    return result


def make_step(
    op: Arithmetic[T], model: OpModel, options: StepOptions
) -> Callable[[T, T, T, T, T, Scalars[T]], StepResult[T]]:
    """Build `step(p, g, m, v, v_max, scalars) -> StepResult`: the whole step, parameter included.

    `v_max` is read and written only with amsgrad, and passed through otherwise.
    """
    until_root, from_root = make_until_root(op, model, options), make_from_root(op, model)
    root, largest = make_root(op, model), make_largest(op, model)

    def step(p: T, g: T, m: T, v: T, v_max: T, k: Scalars[T]) -> StepResult[T]:
        p, m, v = until_root(p, g, m, v, k)
        v_max = largest(v_max, v) if options.amsgrad else v_max
        rooted = root(v_max if options.amsgrad else v)
        return StepResult(from_root(p, m, rooted, k), m, v, v_max)

    return step
