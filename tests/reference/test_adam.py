"""The one Adam step: the textbook's formula in exact numbers, and the same bits in NumPy and in torch."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import isqrt
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.against_torch import NUMPY, TORCH, differing, step_of, trace_of
from tests.strategies import wild_states

from guarded_moments.reference.adam import (
    Decay,
    Scalars,
    StepOptions,
    make_denominator,
    make_increment,
    make_moments,
    make_root,
    make_step,
    make_update,
)
from guarded_moments.reference.arithmetic import Arithmetic
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation
from guarded_moments.reference.op_models import Correction, FromEnd, SecondMoment, Update
from guarded_moments.reference.scalars import kernel_scalars

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = {model.name: model for known in IMPLEMENTATIONS.values() for model in known.models}
OPTIONS = [
    StepOptions(interpolate_from_end=from_end, decay=decay, amsgrad=amsgrad, maximize=maximize)
    for from_end, decay, amsgrad, maximize in product((False, True), Decay, (False, True), (False, True))
]
ADAM = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, decoupled=True)
SCALARS = {model.name: known.scalars(ADAM, 10) for known in IMPLEMENTATIONS.values() for model in known.models}


class ExactRationals:
    """Arithmetic without rounding; roots of squares only."""

    def __getattr__(self, name: str) -> object:
        return _EXACT[name]


def _root(a: Fraction) -> Fraction:
    root = Fraction(isqrt(a.numerator), isqrt(a.denominator))
    assert root**2 == a, f"{a} is no square"
    return root


_EXACT = {
    "constant": Fraction,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "product": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": _root,
    "platform_sqrt": _root,
    "negate": lambda a: -a,
    "select_less": lambda a, b, if_less, otherwise: if_less if a < b else otherwise,
    "select_nan": lambda a, if_nan, otherwise: otherwise,
}
EXACT = cast("Arithmetic[Fraction]", ExactRationals())

rationals = st.fractions(-4, 4, max_denominator=1000)
positive = st.fractions(Fraction(1, 1000), 4, max_denominator=1000)
weights = st.fractions(Fraction(1, 1000), Fraction(999, 1000), max_denominator=1000)


@given(
    options=st.sampled_from(OPTIONS),
    state=st.tuples(rationals, rationals, rationals),
    constants=st.tuples(weights, weights, positive, positive),
    roots=st.tuples(positive, positive, positive, positive),
)
def test_without_rounding_every_op_model_is_the_formula_of_the_paper(
    options: StepOptions,
    state: tuple[Fraction, Fraction, Fraction],
    constants: tuple[Fraction, Fraction, Fraction, Fraction],
    roots: tuple[Fraction, Fraction, Fraction, Fraction],
) -> None:
    """Kingma and Ba's Algorithm 1, with weight decay as in AdamW or as in Adam, and amsgrad's maximum."""
    p, g, m = state
    w, c, lr, decay = constants
    root_v, root_v_max, root, eps = roots
    effective = -g if options.maximize else g
    if options.decay is Decay.L2:
        effective += decay * p
    new_v, v_max = root_v**2, root_v_max**2
    v = (new_v - c * effective**2) / (1 - c)  # what leads to a rational root
    new_m = (1 - w) * m + w * effective
    x = max(v_max, new_v) if options.amsgrad else new_v
    kept = p * (1 - lr * decay) if options.decay is Decay.DECOUPLED else p
    new_p = kept - lr * new_m / (_root(x) / root + eps)
    expected = (new_p, new_m, new_v, x if options.amsgrad else v_max)
    for model in MODELS.values():
        # The step size and the bias correction, where this op model has them.
        inside = -lr if model.update is Update.QUOTIENT else Fraction(1)
        divisor = root * inside
        scalars = Scalars(
            w=w,
            c=c,
            beta1=1 - w,
            beta2=1 - c,
            root=divisor if model.correction is Correction.DIVIDE else 1 / divisor,
            eps=eps / inside,
            step=-lr,
            w_minus_one=w - 1,
            one_minus_w=1 - w,
            shrink=1 - lr * decay,
            decay_product=lr * decay,
            weight_decay=decay,
        )
        assert make_step(EXACT, model, options)(p, g, m, v, v_max, scalars) == expected, model


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize("beta1", [0.3, 0.9])
def test_trajectories_are_the_same_in_numpy_and_in_torch(
    implementation: Implementation, beta1: float, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    """Twenty steps of each op model, from wild states on."""
    hyperparameters = replace(ADAM, beta1=beta1)
    count = 1000 * budget
    for model, decay in product(implementation.models, (Decay.L2, Decay.DECOUPLED)):
        options = replace(hyperparameters.options, decay=decay, amsgrad=decay is Decay.L2)
        in_numpy = in_torch = wild_states(count, rng)
        for step in range(1, 21):
            gradient = wild_states(count, rng)[1]
            scalars = implementation.scalars(hyperparameters, step)
            before = torch.stack((in_numpy[0], gradient, *in_numpy[-3:]))
            in_numpy = step_of(NUMPY, model, options, scalars, before)
            before = torch.stack((in_torch[0], gradient, *in_torch[-3:]))
            in_torch = step_of(TORCH, model, options, scalars, before)
            assert not differing(in_numpy, in_torch).any(), step
            compared["trajectories in NumPy with torch"] += in_torch.numel()
        assert in_torch[:3].isfinite().any(dim=1).all(), "everything overflowed: nothing was compared"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("from_end", [False, True])
def test_the_update_is_what_the_step_adds_to_the_parameter(
    name: str, *, from_end: bool, rng: np.random.Generator
) -> None:
    model, options = MODELS[name], StepOptions(interpolate_from_end=from_end)
    scalars = Scalars(*(TORCH.op.constant(x) for x in SCALARS[name]))
    p, g, m, v, v_max = wild_states(10_000, rng)
    update = make_update(TORCH.op, model, options)(m, v, g, scalars)
    result = make_step(TORCH.op, model, options)(p, g, m, v, v_max, scalars)
    new_m, new_v = make_moments(TORCH.op, model, options)(m, v, g, scalars)
    assert not differing(new_m, result.m).any()
    assert not differing(new_v, result.v).any()
    rooted = make_root(TORCH.op, model)(new_v)
    again = make_increment(TORCH.op, model)(new_m, rooted, scalars)
    assert torch.equal(again.double().nan_to_num(), update.double().nan_to_num())
    assert result.v_max is v_max, "without amsgrad it is passed through"
    if model.rounds_update:
        assert update.dtype is torch.float32
        assert not differing(p + update, result.p).any()
    else:  # the update is the exact product, and the parameter is rounded once
        assert update.dtype is torch.float64
        quotient = new_m / make_denominator(TORCH.op, model)(rooted, scalars)
        assert torch.equal(update.nan_to_num(), (scalars.step.double() * quotient.double()).nan_to_num())
        assert not differing(TORCH.op.fma(scalars.step, quotient, p), result.p).any()


@pytest.mark.parametrize("decay", Decay)
def test_maximize_is_a_step_with_the_opposite_gradient(decay: Decay, rng: np.random.Generator) -> None:
    p, g, m, v, v_max = states = wild_states(3000, rng)
    options = StepOptions(decay=decay, maximize=True)
    for name, model in MODELS.items():
        result = step_of(TORCH, model, options, SCALARS[name], states)
        opposite = step_of(
            TORCH, model, replace(options, maximize=False), SCALARS[name], torch.stack((p, -g, m, v, v_max))
        )
        assert not differing(result, opposite).any(), name


def test_amsgrad_divides_by_the_largest_second_moment(rng: np.random.Generator) -> None:
    states = wild_states(3000, rng)
    for name, model in MODELS.items():
        with_it = step_of(TORCH, model, StepOptions(amsgrad=True), SCALARS[name], states)
        without = step_of(TORCH, model, StepOptions(), SCALARS[name], states)
        assert not differing(with_it[1:3], without[1:3]).any()
        numbers = ~(with_it[2].isnan() | states[4].isnan())
        assert torch.equal(with_it[3, numbers], torch.maximum(states[4], with_it[2])[numbers])
        again = step_of(TORCH, model, StepOptions(amsgrad=True), SCALARS[name], torch.stack((*states[:4], with_it[3])))
        assert not differing(again[0, numbers], with_it[0, numbers]).any(), name


def operations(name: str, options: StepOptions) -> str:
    """What one step does, in order."""
    trace, _ = trace_of(MODELS[name], options, SCALARS[name], torch.full((5, 1), 0.5))
    return " ".join(operation.name for operation in trace)


#: The operations of each op model, written out by hand: AdamW with decay; and Adam with decay, from the other end.
SEQUENCES = {
    "torch-2.13-cpu-avx2/single/body": (
        "mul  sub fma  mul mul fma  platform_sqrt  mul div add div  add",
        "fma  sub fma  mul mul fma  platform_sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-avx2/single/tail": (
        "mul  sub fma  mul mul fma  platform_sqrt  mul div add div  add",
        "fma  sub negate fma  mul mul fma  platform_sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-avx2/fused/body": (
        "mul  sub fma  mul mul fma  sqrt  mul div add div  add",
        "fma  sub fma  mul mul fma  sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-avx2/fused/tail": (
        "mul  sub fma  mul mul fma  sqrt  mul div add div  add",
        "fma  sub negate fma  mul mul fma  sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-avx2/compiled": (
        "mul  sub mul add  mul mul fma  sqrt div add  div add",
        "mul add  sub mul sub  mul mul fma  sqrt div add  div add",
    ),
    "torch-2.13-cpu-avx2/compiled-foreach": (
        "mul  sub mul add  mul mul mul add  sqrt div add  div div add",
        "mul add  sub mul sub  mul mul mul add  sqrt div add  div div add",
    ),
    "torch-2.13-cpu-default/single/body": (
        "mul  sub mul add  mul mul mul add  platform_sqrt  mul div add div  add",
        "mul add  sub mul add  mul mul mul add  platform_sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-default/single/tail": (
        "mul  sub mul add  mul mul mul add  platform_sqrt  mul div add div  add",
        "mul add  sub mul sub  mul mul mul add  platform_sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-default/fused/body": (
        "mul  sub mul add  mul mul mul add  sqrt  mul div add div  add",
        "mul add  sub mul add  mul mul mul add  sqrt  mul div add div  add",
    ),
    "torch-2.13-cpu-default/fused/tail": (
        "mul  sub mul add  mul mul mul add  sqrt  mul div add div  add",
        "mul add  sub mul sub  mul mul mul add  sqrt  mul div add div  add",
    ),
    "torch-2.14-cuda/single": (
        "mul  sub fma  mul mul fma  sqrt mul add  div fma",
        "fma  sub negate fma  mul mul fma  sqrt mul add  div fma",
    ),
    "torch-2.14-cuda/foreach": (
        "mul  sub fma  mul mul fma  sqrt div add  div fma",
        "fma  sub negate fma  mul mul fma  sqrt div add  div fma",
    ),
    "torch-2.14-cuda/capturable": (
        "mul  sub fma  mul mul fma  sqrt div add  div add",
        "fma  sub negate fma  mul mul fma  sqrt div add  div add",
    ),
    "torch-2.14-cuda/capturable-foreach": (
        "mul  sub fma  mul mul fma  sqrt div add  div div add",
        "fma  sub negate fma  mul mul fma  sqrt div add  div div add",
    ),
    "torch-2.14-cuda-sm75-sm90/fused/fused decay": (
        "negate fma  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
        "fma  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
    ),
    "torch-2.14-cuda-sm75-sm90/fused/separate decay": (
        "negate fma  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
        "mul add  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
    ),
    "torch-2.14-cuda-sm100-sm120/fused": (
        "negate fma  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
        "fma  negate fma fma  mul negate fma fma  sqrt  mul div add div  add",
    ),
}


def test_each_op_model_has_its_operations_written_out() -> None:
    assert set(SEQUENCES) == set(MODELS)


@pytest.mark.parametrize(("name", "written"), SEQUENCES.items(), ids=SEQUENCES)
def test_the_operations_of_an_op_model(name: str, written: tuple[str, str]) -> None:
    decoupled, l2 = (" ".join(sequence.split()) for sequence in written)
    assert operations(name, StepOptions(decay=Decay.DECOUPLED)) == decoupled
    assert operations(name, StepOptions(decay=Decay.L2, interpolate_from_end=True)) == l2


def test_the_fused_second_moments_differ_in_what_is_fused() -> None:
    state = torch.tensor([1.0, 0.7, 1.0, 0.3, 1.0])[:, None]
    g, v = state[1].item(), state[3].item()
    model, scalars = MODELS["torch-2.13-cpu-avx2/fused/body"], SCALARS["torch-2.13-cpu-avx2/fused/body"]
    c, beta2 = scalars.c, scalars.beta2
    f32 = np.float32
    last_fma = {
        SecondMoment.FMA_PRODUCT: (f32(c) * f32(g), g, f32(v) * f32(beta2)),
        SecondMoment.FMA_DECAY: (v, beta2, f32(c) * f32(g) * f32(g)),
        SecondMoment.FMA_SQUARE: (c, f32(g) * f32(g), f32(v) * f32(beta2)),
    }
    for second, operands in last_fma.items():
        trace, _ = trace_of(replace(model, second_moment=second), StepOptions(), scalars, state)
        fused = [operation for operation in trace if operation.name == "fma"]
        assert fused[1].operands == tuple(map(float, operands)), second


def test_unfused_second_moments_differ_in_what_is_multiplied_first() -> None:
    state = torch.tensor([1.0, 0.7, 1.0, 0.3, 1.0])[:, None]
    g = state[1].item()
    model, scalars = MODELS["torch-2.13-cpu-avx2/compiled-foreach"], SCALARS["torch-2.13-cpu-avx2/compiled-foreach"]
    for second, factors in ((SecondMoment.SEPARATE, (scalars.c, g)), (SecondMoment.SEPARATE_SQUARE, (g, g))):
        trace, _ = trace_of(replace(model, second_moment=second), StepOptions(), scalars, state)
        assert factors in [operation.operands for operation in trace if operation.name == "mul"], second


def test_the_compiled_foreach_step_divides_the_denominator_by_the_step_size() -> None:
    """An element seen in torch's compiled step: its second moment is another than the compiled single step's."""
    state = torch.tensor([0.5, 0.0, float.fromhex("-0x1.40b0f8p-11"), 0.0, 0.0])[:, None]
    state[1, 0], state[3, 0] = torch.tensor([0x3AA36DB6, 0x3145C1BE], dtype=torch.int32).view(torch.float32)
    single, foreach = (IMPLEMENTATIONS[f"torch-2.13-cpu-avx2/{path}"] for path in ("compiled", "compiled-foreach"))
    _, after_single = trace_of(single.body, StepOptions(), single.scalars(ADAM, 1), state)
    trace, after = trace_of(foreach.body, StepOptions(), foreach.scalars(ADAM, 1), state)
    assert [f"{bits_of(v.item()):08x}" for v in (after_single[2], after[2])] == ["31983283", "31983284"]
    scaled, quotient = trace[-3:-1]
    assert (scaled.name, scaled.operands[1]) == ("div", foreach.scalars(ADAM, 1).step)
    assert (quotient.name, quotient.operands) == ("div", (after[1].item(), scaled.result))


def test_interpolation_from_either_end_gives_another_zero() -> None:
    """`beta1 = 0` and a gradient of minus zero: which zero `m` becomes is the sign of `0 * (g - m)`, or not."""
    model = MODELS["torch-2.13-cpu-avx2/single/body"]
    scalars = kernel_scalars(replace(ADAM, beta1=0.0), 10)
    options = StepOptions(interpolate_from_end=True)
    state = torch.tensor([0.0, -0.0, -1.0, 1.0, 1.0])[:, None]
    minus = {
        from_end: bool(step_of(TORCH, replace(model, from_end=from_end), options, scalars, state)[1].signbit())
        for from_end in FromEnd
    }
    assert minus == {FromEnd.SCALED: False, FromEnd.SUBTRACTED: True}


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_results_have_the_shape_of_the_state(shape: tuple[int, ...]) -> None:
    for (name, model), options in product(MODELS.items(), OPTIONS):
        x = np.full(shape, 0.5, np.float32)
        in_numpy = Scalars(*(NUMPY.op.constant(value) for value in SCALARS[name]))
        arrays = make_step(NUMPY.op, model, options)(x, x, x, x, x, in_numpy)
        assert [np.shape(array) for array in arrays] == [shape] * 4, name
        y = torch.full(shape, 0.5)
        in_torch = Scalars(*(TORCH.op.constant(value) for value in SCALARS[name]))
        tensors = make_step(TORCH.op, model, options)(y, y, y, y, y, in_torch)
        assert [tuple(tensor.shape) for tensor in tensors] == [shape] * 4, name
