"""The constants that a kernel holds: torch's are seen in its results, CUDA's follow their written sequence."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.reference.against_torch import PATHS, TORCH, Native, Predicted, Setting, differing
from tests.strategies import wild_states

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.cuda_powf import cuda_powf
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import bits_of, hex_of, round_to_binary32
from guarded_moments.reference.hyperparameters import Hyperparameters, next_step
from guarded_moments.reference.scalars import Constants, c_library_powf, kernel_scalars

pytestmark = pytest.mark.usefixtures("one_thread")

BETAS = st.sampled_from((0.0, 0.3, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1 - 2.0**-24)) | st.floats(0, 1 - 2.0**-24)
STEPS = st.integers(1, 2**24).map(float) | st.sampled_from((1.0, 2.0, 10.0, 1000.0, 2.0**24))
DONE = STEPS.map(lambda step: step - 1)
#: Of foreach steps whose constants are lists of tensors.
LISTS = {Constants.CAPTURABLE_FOREACH, Constants.COMPILED_FOREACH}
ADAM = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, decoupled=True)


def hyperparameters_of(setting: Setting) -> Hyperparameters:
    """As read from a param_group of torch."""
    group = setting.make([torch.nn.Parameter(torch.zeros(1))]).state_dict()["param_groups"][0]
    return Hyperparameters.from_param_group(group, "param_groups[0]")


def scalars_of(setting: Setting) -> Scalars[float]:
    """Of the step after `steps_done`."""
    step = next_step(torch.tensor(setting.steps_done, dtype=torch.float32), "the state")
    return kernel_scalars(hyperparameters_of(setting), step)


def after_one_step(
    setting: Setting, p: float, g: float, m: float, v: float, v_max: float = 0.0
) -> tuple[float, float, float]:
    """Torch's `p m v` after one step; the tensor is long enough that all paths are in their body."""
    states = torch.tensor([p, g, m, v, v_max], dtype=torch.float32).repeat_interleave(16).reshape(5, 16)
    after = Native(setting, states, [16]).step(states[1])
    return after[0, 0].item(), after[1, 0].item(), after[2, 0].item()


def expect(name: str, scalar: float, effect: float, setting: Setting) -> None:
    seen, expected = hex_of(effect), hex_of(scalar)
    assert seen == expected, f"{name} is {expected}, torch's has the effect {seen}; {setting}"


#: A path, and whether it has the learning rate and the betas in tensors, which torch refuses of foreach.
FORMS = [("single", False), ("single", True), ("foreach", False), ("fused", False), ("fused", True)]


@pytest.mark.parametrize(("path", "tensors"), FORMS)
@given(beta1=BETAS, beta2=BETAS, done=DONE)
@example(beta1=0.9, beta2=0.999, done=0.0)
@example(beta1=0.9, beta2=0.999, done=2.0**24)
def test_the_weights_are_seen_in_torchs_results(
    path: str, *, tensors: bool, beta1: float, beta2: float, done: float
) -> None:
    """States chosen so that a result *is* one scalar, every other operation being exact."""
    setting = Setting(path=path, tensor_betas=tensors, beta1=beta1, beta2=beta2, steps_done=done)
    scalars = scalars_of(setting)
    if not hyperparameters_of(setting).options.interpolate_from_end:
        expect("w", scalars.w, after_one_step(setting, 0, 1, 0, 0)[1], setting)
    else:
        expect("1 - w", scalars.one_minus_w, after_one_step(setting, 0, 0, 1, 0)[1], setting)
        assert scalars.w_minus_one == -scalars.one_minus_w
    expect("c", scalars.c, after_one_step(setting, 0, 1, 0, 0)[2], setting)
    expect("beta2", scalars.beta2, after_one_step(setting, 0, 0, 0, 1)[2], setting)


@pytest.mark.parametrize(("path", "tensors"), FORMS)
@given(beta1=BETAS, lr=st.floats(1e-12, 10) | st.just(0.0), done=DONE)
@example(beta1=0.9, lr=1e-3, done=2.0**24)
def test_the_step_size_is_seen_in_torchs_results(
    path: str, *, tensors: bool, beta1: float, lr: float, done: float
) -> None:
    setting = Setting(
        path=path, beta1=beta1, lr=lr, tensor_lr=tensors, tensor_betas=tensors, steps_done=done, eps=2.0**30
    )
    update = after_one_step(setting, -0.0, 1, 1, 0)[0]  # m' = 1, and beside eps the root vanishes
    expect("step", scalars_of(setting).step, update * 2.0**30, setting)


@pytest.mark.parametrize("path", PATHS)
@given(beta2=BETAS, done=DONE, eps=st.floats(1e-12, 1e12))
def test_eps_and_the_root_are_seen_in_torchs_results(path: str, beta2: float, done: float, eps: float) -> None:
    """`beta1 = 1/2` and a gradient of zero halve `m`; then `m' = -1` and the step size is `1 - 2**-t`, nearly 1."""
    lr = 1 - 0.5 ** (done + 1)
    without_root = Setting(path=path, beta1=0.5, lr=lr, steps_done=done, eps=eps)
    scalars = scalars_of(without_root)
    assert scalars.step == -1.0
    expected = np.float32(1) / np.float32(scalars.eps)
    expect("1 / eps", float(expected), after_one_step(without_root, 0, 0, -2, 0)[0], without_root)
    without_eps = replace(without_root, beta2=beta2, eps=0.0, amsgrad=True)
    scalars = scalars_of(without_eps)
    expected = np.float32(1) / (np.float32(2) / np.float32(scalars.root))
    expect("root / 2", float(expected), after_one_step(without_eps, 0, 0, -2, 0, v_max=4)[0], without_eps)


@pytest.mark.parametrize(("path", "tensors"), FORMS)
@given(lr=st.floats(1e-6, 2), decay=st.floats(1e-6, 2))
def test_weight_decay_is_seen_in_torchs_results(path: str, *, tensors: bool, lr: float, decay: float) -> None:
    decoupled = Setting(path=path, optimizer="AdamW", lr=lr, tensor_lr=tensors, weight_decay=decay)
    scalars = scalars_of(decoupled)
    if scalars.shrink != 0:
        expect("shrink", scalars.shrink, after_one_step(decoupled, 1, 0, 0, 1)[0], decoupled)
    coupled = Setting(path=path, lr=lr, tensor_lr=tensors, weight_decay=decay, beta1=0.0)
    expect("weight_decay", scalars_of(coupled).weight_decay, after_one_step(coupled, 1, 0, 0, 1)[1], coupled)


#: What CPU kernels use; `beta1` and `decay_product` are for CUDA's.
USED = [field for field in Scalars._fields if field not in {"beta1", "decay_product"}]


@pytest.mark.parametrize("field", USED)
def test_a_scalar_one_unit_away_is_told_apart(field: str, rng: np.random.Generator) -> None:
    """So the comparison with torch can fail for each of them."""
    from_end = field in {"w_minus_one", "one_minus_w"}
    setting = Setting(
        path="fused",
        optimizer="AdamW" if field == "shrink" else "Adam",
        weight_decay=0.1,
        beta1=0.3 if from_end else 0.9,
        steps_done=9,
    )
    sizes = [7] * 200 if field == "one_minus_w" else [2000]  # which only the tail uses
    states = wild_states(sum(sizes), rng)
    native = Native(setting, states, sizes)
    predicted = Predicted.of(native)
    after = native.step(states[1])
    assigned = predicted.assign(sizes)
    assert not differing(predicted.step(TORCH, states, assigned), after).any()
    value = np.nextafter(np.float32(getattr(predicted.scalars, field)), np.float32(2))
    changed = replace(predicted, scalars=predicted.scalars._replace(**{field: float(value)}))
    assert differing(changed.step(TORCH, states, assigned), after).any()


def test_the_constant_of_tensor_betas_is_another() -> None:
    """`1 - f32(beta2)` is a hundred units away from `f32(1 - beta2)`."""
    ours = kernel_scalars(ADAM, 1).c
    of_tensors = kernel_scalars(replace(ADAM, betas_are_tensors=True), 1).c
    assert of_tensors == 1 - float(np.float32(0.999))
    assert abs(bits_of(ours) - bits_of(of_tensors)) > 100
    assert kernel_scalars(replace(ADAM, betas_are_tensors=True, fused=True), 1).c == ours, "fused takes their value"


@given(
    lr=st.floats(0, 10),
    beta1=BETAS,
    beta2=BETAS,
    eps=st.floats(0, 1),
    decay=st.floats(0, 1),
    step=STEPS,
    tensors=st.booleans(),
)
def test_every_scalar_is_a_binary32(
    *, lr: float, beta1: float, beta2: float, eps: float, decay: float, step: float, tensors: bool
) -> None:
    hyperparameters = Hyperparameters(
        lr=float(np.float32(lr)) if tensors else lr,
        beta1=float(np.float32(beta1)) if tensors else beta1,
        beta2=float(np.float32(beta2)) if tensors else beta2,
        eps=eps,
        weight_decay=decay,
        decoupled=True,
        lr_is_tensor=tensors,
        betas_are_tensors=tensors,
    )
    for constants in set(Constants) - (LISTS if tensors else set()):
        for name, value in kernel_scalars(hyperparameters, step, constants)._asdict().items():
            assert isinstance(value, float), name
            assert math.isnan(value) or float(np.float32(value)) == value, (constants, name, value)


def test_eps_below_the_subnormals_is_zero() -> None:
    assert kernel_scalars(replace(ADAM, eps=1e-46), 1).eps == 0
    assert kernel_scalars(ADAM, 1).eps == 9.99999993922529e-09


@pytest.mark.parametrize("step", [1, 2, 10, 1000, 100_000])
def test_the_constants_of_cudas_fused_kernel(step: float) -> None:
    """Everything in binary32, from binary32 hyperparameters, on the device."""
    f32 = np.float32
    found = kernel_scalars(ADAM, step, Constants.DEVICE)
    bias_correction1 = f32(1) - f32(cuda_powf(float(f32(0.9)), step))
    bias_correction2 = f32(1) - f32(cuda_powf(float(f32(0.999)), step))
    assert found.beta1 == f32(0.9)
    assert found.beta2 == f32(0.999)
    assert found.step == -(f32(1e-3) / bias_correction1)
    assert found.root == np.sqrt(bias_correction2)
    assert found.decay_product == f32(1e-3) * f32(0.1)
    assert found.eps == f32(1e-8)


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize(
    ("constants", "power"), [(Constants.CAPTURABLE, cuda_powf), (Constants.COMPILED, c_library_powf)]
)
def test_the_constants_with_the_step_size_inside_the_denominator(
    constants: Constants, power: Callable[[float, float], float], *, tensor: bool
) -> None:
    f32 = np.float32
    lr = float(f32(1e-3)) if tensor else 1e-3
    found = kernel_scalars(replace(ADAM, lr=lr, lr_is_tensor=tensor), 10, constants)
    bias_correction1 = f32(1) - f32(power(float(f32(0.9)), 10))
    bias_correction2 = f32(1) - f32(power(float(f32(0.999)), 10))
    step_size = f32(lr) / bias_correction1 if tensor else f32(1) / bias_correction1 * f32(lr)
    assert found.root == np.sqrt(bias_correction2) * -step_size
    assert found.eps == f32(1) / -step_size * f32(1e-8)


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("beta2", [0.999, 1 - 2.0**-30])
@pytest.mark.parametrize("step", [1.0, 10.0, 1e5])
@pytest.mark.parametrize(
    ("constants", "power"), [(Constants.CAPTURABLE_FOREACH, cuda_powf), (Constants.COMPILED_FOREACH, c_library_powf)]
)
def test_the_constants_with_the_step_size_as_a_divisor(
    constants: Constants, power: Callable[[float, float], float], step: float, beta2: float, *, tensor: bool
) -> None:
    f32 = np.float32
    lr = float(f32(1e-3)) if tensor else 1e-3
    found = kernel_scalars(replace(ADAM, lr=lr, lr_is_tensor=tensor, beta2=beta2), step, constants)
    assert found.step == f32(1) / ((f32(power(float(f32(0.9)), step)) - f32(1)) / f32(lr))
    assert hex_of(found.root) == hex_of(float(np.sqrt(-(f32(power(float(f32(beta2)), step)) - f32(1)))))
    assert found.eps == f32(1e-8)
    assert found.shrink == (f32(1) - f32(lr) * f32(0.1) if tensor else f32(1 - 1e-3 * 0.1))


@pytest.mark.parametrize("constants", sorted(LISTS, key=str))
def test_betas_as_tensors_are_refused_where_they_change_the_sequence(constants: Constants) -> None:
    with pytest.raises(UnsupportedError, match="betas as tensors are not supported"):
        kernel_scalars(replace(ADAM, betas_are_tensors=True), 1, constants)


@given(
    base=st.floats(0, 1, width=32, exclude_min=True, exclude_max=True, allow_subnormal=False),
    exponent=st.integers(1, 2**20),
)
def test_the_c_librarys_powf_is_a_power(base: float, exponent: int) -> None:
    power = c_library_powf(base, float(exponent))
    assert float(np.float32(power)) == power
    assert math.isclose(power, base**exponent, rel_tol=2.0**-22, abs_tol=2.0**-149)


@pytest.mark.parametrize("constants", [Constants.COMPILED, Constants.COMPILED_FOREACH])
def test_a_compiled_step_with_a_beta1_that_only_binary32_takes_for_a_half_is_refused(constants: Constants) -> None:
    """Inductor compares the weight with 1/2 in double precision, every other path in binary32."""
    for beta1 in (0.5 + 1e-10, 0.5 + 1e-8):
        with pytest.raises(UnsupportedError, match="is 1/2 in binary32 and not in double precision"):
            kernel_scalars(replace(ADAM, beta1=beta1), 10, constants)
        assert kernel_scalars(replace(ADAM, beta1=beta1), 10).w == 0.5
    for beta1 in (0.5, 0.5 - 1e-10, 0.5 + 1e-7):
        kernel_scalars(replace(ADAM, beta1=beta1), 10, constants)


def test_a_compiled_single_step_forms_the_weight_of_m_in_doubles() -> None:
    """Measured with torch 2.13: at beta1 = 0.4 it holds f32(0.4), where all other paths hold 1 - f32(0.6)."""
    adam = replace(ADAM, beta1=0.4)
    assert kernel_scalars(adam, 10, Constants.COMPILED).one_minus_w == round_to_binary32(0.4)
    for constants in (Constants.HOST, Constants.COMPILED_FOREACH):
        assert kernel_scalars(adam, 10, constants).one_minus_w == 1 - round_to_binary32(0.6)
