"""The op models of this machine's CPU are what `torch.optim.Adam` and `AdamW` compute, bit for bit.

Every comparison is made in both arithmetics.  That a comparison can fail is shown by op models with one field changed:
each is told apart from torch, in the body and in the tail, wherever it can differ.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from enum import Enum
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import BUDGET_VARIABLE, SEED_VARIABLE
from tests.reference.against_torch import (
    DOMAINS,
    OPTIMIZERS,
    PATHS,
    STEPS_DONE,
    TORCH,
    Native,
    Predicted,
    Setting,
    alterations,
    check_steps,
    differing,
    explain,
    random_settings,
    step_of,
)
from tests.strategies import wild_states, zeros_and_ones
from torch import Tensor
from torch.nn import functional

from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import (
    IMPLEMENTATIONS,
    Placement,
    implementation_named,
)
from guarded_moments.reference.op_models import FromEnd, Maximum, OpModel, SecondMoment
from guarded_moments.reference.scalars import kernel_scalars

Layout = Callable[[Tensor], Tensor]

SMALL = tuple(range(1, 71))
LARGE = (4096, 40_000, 100_003)
ROWS, COLUMNS = 91, 110  #: of a matrix; its 10,010 elements are 10 more than a multiple of 16


pytestmark = pytest.mark.usefixtures("one_thread")  # tests of threads set their number


@pytest.mark.timeout(600)  # for `--oracle`
@pytest.mark.parametrize("decay", [False, True], ids=["no decay", "decay"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("path", PATHS)
def test_torch_is_reproduced(
    path: str, optimizer: str, *, decay: bool, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    """Small tensors under each combination of `beta1` and step, large ones under a few."""
    count = 0
    for repeat in range(budget):
        chosen = list(random_settings(rng, path=path, optimizer=optimizer, decay=decay, thorough=budget > 1))
        for i, setting in enumerate(chosen):
            states = wild_states(sum(SMALL), rng)
            native = Native(setting, states, SMALL, views=(i + repeat) % 2 == 0)
            count += check_steps(native, states, [states[1]], compared)
        for setting in rng.choice(np.array(chosen, dtype=object), size=1 + budget // 2, replace=False):
            states = wild_states(sum(LARGE), rng)
            count += check_steps(Native(setting, states, LARGE), states, [states[1]], compared)
    assert count >= 1_000_000 * budget


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("path", PATHS)
def test_torch_is_reproduced_on_several_threads(
    path: str, number: int, rng: np.random.Generator, budget: int, compared: Counter[str], threads: None
) -> None:
    """Unfused kernels have a tail at the end of each thread's chunk, wherever that is in the tensor."""
    torch.set_num_threads(number)
    sizes = (32_767, 32_798, 65_580)
    for states in (make(sum(sizes), rng) for _ in range(budget) for make in (wild_states, zeros_and_ones)):
        setting = Setting(path=path, beta1=0.0, amsgrad=True, weight_decay=0.01, steps_done=9)  # where a tail shows
        check_steps(Native(setting, states, sizes), states, [states[1]], compared)


@pytest.mark.parametrize("path", PATHS)
def test_five_steps_one_after_the_other_are_reproduced(
    path: str, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    sizes = (*SMALL, 4096)
    for i in range(6 * budget):
        chosen = list(random_settings(rng, path=path, optimizer=("Adam", "AdamW")[i % 2], decay=True))
        states = wild_states(sum(sizes), rng)
        gradients = [wild_states(sum(sizes), rng)[1] for _ in range(5)]
        check_steps(Native(rng.choice(np.array(chosen)), states, sizes), states, gradients, compared)


@pytest.mark.parametrize("path", PATHS)
def test_training_from_nothing_is_reproduced(path: str, rng: np.random.Generator, compared: Counter[str]) -> None:
    """Torch makes the state itself, and gradients are as a loss gives them."""
    sizes = (257, 4096, 15)
    p = torch.from_numpy(rng.standard_normal(sum(sizes)).astype(np.float32))
    gradients = torch.from_numpy(rng.standard_normal((20, sum(sizes))).astype(np.float32)) * 1e-3
    before = torch.stack((p, *[torch.zeros_like(p)] * 4))
    for optimizer in OPTIMIZERS:
        setting = Setting(path=path, optimizer=optimizer, weight_decay=0.01, amsgrad=True)
        check_steps(Native(setting, before, sizes, fresh=True), before, list(gradients), compared)


def contiguous(x: Tensor) -> Tensor:
    return x.clone().view(ROWS, COLUMNS)


def columns_first(x: Tensor) -> Tensor:
    return x.view(ROWS, COLUMNS).t().contiguous().t()


def channels_last(x: Tensor) -> Tensor:
    return x.view(7, 13, 10, 11).contiguous(memory_format=torch.channels_last)


def every_second(x: Tensor) -> Tensor:
    return torch.stack((x, x), dim=1).view(ROWS, 2 * COLUMNS)[:, ::2]


def padded_rows(x: Tensor) -> Tensor:
    return functional.pad(x.view(ROWS, COLUMNS), (3, 5))[:, 3 : 3 + COLUMNS]


def step_of_one(setting: Setting, tensors: Sequence[Tensor]) -> list[Tensor]:
    """`p m v vmax` after a step of torch on one parameter with these `p g m v vmax`, whatever their strides."""
    p, g, m, v, v_max = tensors
    parameter = torch.nn.Parameter(p)
    parameter.grad = g
    optimizer = setting.make([parameter])
    step = torch.tensor(setting.steps_done, dtype=torch.float32)
    optimizer.state[parameter] = {"step": step, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max}
    optimizer.step()
    return [parameter.detach(), m, v, v_max]


def telling_settings(path: str) -> list[Setting]:
    """Where op models differ most: from either end, with ties of zeros, each decay, and a denominator of zero."""
    return [
        Setting(path=path, optimizer=optimizer, beta1=beta1, amsgrad=True, weight_decay=0.1, steps_done=9, eps=eps)
        for optimizer, beta1, eps in (("Adam", 0.0, 0.0), ("Adam", 0.9, 1e-8), ("AdamW", 0.0, 1e-8))
    ]


@pytest.mark.parametrize("layout", [channels_last, columns_first])
@pytest.mark.parametrize("path", ["single", "foreach"])
def test_dense_tensors_are_reproduced_in_the_order_of_memory(
    path: str, layout: Layout, rng: np.random.Generator, compared: Counter[str]
) -> None:
    """All of a parameter's tensors laid out alike: a kernel sees one row, and its tail is the end of that row."""
    states = wild_states(ROWS * COLUMNS, rng)
    for setting in telling_settings(path):
        tensors = [layout(row) for row in states]
        before = torch.stack([in_memory(tensor) for tensor in tensors])
        predicted = Predicted.of(Native(setting, states, [ROWS * COLUMNS]))
        expected = predicted.step(TORCH, before, predicted.assign([ROWS * COLUMNS]))
        result = torch.stack([in_memory(tensor) for tensor in step_of_one(setting, tensors)])
        assert not differing(result, expected).any()
        compared["torch.optim with op models (other layouts)"] += result.numel()


def in_memory(tensor: Tensor) -> Tensor:
    """A copy of a dense tensor's elements in the order of memory."""
    return tensor.as_strided((tensor.numel(),), (1,)).clone()


@pytest.mark.parametrize(
    ("of_parameter", "of_gradient", "of_state"),
    [
        (every_second, every_second, every_second),
        (every_second, every_second, contiguous),  # as torch makes the state of such a parameter
        (padded_rows, padded_rows, padded_rows),
        (padded_rows, padded_rows, contiguous),
        (contiguous, columns_first, contiguous),
    ],
)
@pytest.mark.parametrize("path", ["single", "foreach"])
def test_strided_tensors_are_reproduced_up_to_which_zero(
    path: str,
    of_parameter: Layout,
    of_gradient: Layout,
    of_state: Layout,
    rng: np.random.Generator,
    compared: Counter[str],
) -> None:
    """Each kernel of the unfused step takes a loop of its own, a body's or a tail's; these differ in a zero's sign."""
    states = wild_states(ROWS * COLUMNS, rng)
    for setting in telling_settings(path):
        tensors = [of_parameter(states[0]), of_gradient(states[1]), *(of_state(row) for row in states[2:])]
        assert not differing(torch.stack([x.reshape(-1) for x in tensors]), states).any(), "the layouts change values"
        predicted = Predicted.of(Native(setting, states, [ROWS * COLUMNS]))
        result = torch.stack([x.reshape(-1) for x in step_of_one(setting, tensors)])
        reproduced = torch.zeros(ROWS * COLUMNS, dtype=torch.bool)
        for from_end, maximum in product(FromEnd, (Maximum.TIE_SECOND, Maximum.TIE_FIRST)):
            model = replace(predicted.implementation.body, from_end=from_end, maximum=maximum)
            expected = step_of(TORCH, model, predicted.options, predicted.scalars, states)
            reproduced |= ~differing(result, expected).any(dim=0)
        assert reproduced.all()
        compared["torch.optim with op models (other layouts)"] += result.numel()


@pytest.mark.parametrize("part", ["body", "tail"])
@pytest.mark.parametrize("path", ["single", "fused"])
def test_an_op_model_with_one_field_changed_is_told_apart(path: str, part: str, rng: np.random.Generator) -> None:
    sizes = SMALL * 8
    index = ("body", "tail").index(part)
    told_apart: Counter[str] = Counter()
    changes: set[str] = set()
    roots_differ = False
    for setting in telling_settings(path):
        states = wild_states(sum(sizes), rng)
        native = Native(setting, states, sizes)
        predicted = Predicted.of(native)
        assigned = predicted.assign(sizes)
        after = native.step(states[1])
        assert not differing(predicted.step(TORCH, states, assigned), after).any(), "unchanged it is torch's"
        here = assigned == index
        roots_differ |= bool(differing(after[3].sqrt(), TorchBinary32().sqrt(after[3]))[here].any())
        for change, model in alterations(predicted.implementation.models[index]):
            wrong = differing(predicted.with_model(index, model).step(TORCH, states, assigned), after).any(dim=0)
            assert not wrong[~here].any(), f"{change}: only the {part} was changed"
            told_apart[change] += int(wrong.sum())
            changes.add(change)
    assert {change.split("=")[0] for change in changes} == {field.name for field in fields(OpModel)} - {"name"}
    same = {change for change in changes if told_apart[change] == 0}
    unobservable = {change for change in changes if change.startswith("square_root") and not roots_differ}
    assert same == unobservable, told_apart


@pytest.mark.parametrize("path", ["single", "fused"])
def test_op_models_in_the_wrong_places_are_told_apart(path: str, rng: np.random.Generator) -> None:
    sizes = SMALL * 8
    setting = Setting(path=path, beta1=0.0, amsgrad=True, weight_decay=0.1, steps_done=9)
    states = wild_states(sum(sizes), rng)
    native = Native(setting, states, sizes)
    predicted = Predicted.of(native)
    assigned = predicted.assign(sizes)
    after = native.step(states[1])
    right = predicted.implementation
    (other,) = {Placement.LAST_OF_VECTOR, Placement.LAST_OF_CHUNK} - {right.placement}
    elsewhere = replace(predicted, implementation=replace(right, placement=other)).assign(sizes)
    for places in (torch.zeros_like(assigned), torch.ones_like(assigned), 1 - assigned, elsewhere):
        assert differing(predicted.step(TORCH, states, places), after).any()


def test_the_tails_of_another_number_of_threads_are_told_apart(rng: np.random.Generator, threads: None) -> None:
    torch.set_num_threads(2)
    sizes = [65_566]  # two chunks of 32,783, which is 15 more than a multiple of 16
    setting = Setting(path="single", beta1=0.0, amsgrad=True)
    states = zeros_and_ones(sum(sizes), rng)
    native = Native(setting, states, sizes)
    predicted = Predicted.of(native)
    after = native.step(states[1])
    assert not differing(predicted.step(TORCH, states, predicted.assign(sizes)), after).any()
    assert differing(predicted.step(TORCH, states, predicted.assign(sizes, threads=1)), after).any()


def test_a_difference_is_explained_by_its_bits_and_its_operation(
    rng: np.random.Generator, compared: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(path="fused", weight_decay=0.01)
    states = wild_states(sum(SMALL), rng)
    native = Native(setting, states, SMALL)
    right = Predicted.of(native)
    other = next(second for second in SecondMoment if second is not right.implementation.body.second_moment)
    body = replace(right.implementation.body, second_moment=other)
    monkeypatch.setattr(Predicted, "of", lambda native: right.with_model(0, body))
    with pytest.raises(AssertionError) as raised:
        check_steps(native, states, [states[1]], compared)
    text = str(raised.value)
    assert re.search(r"^the first is element \d+ of tensor \d+", text, re.MULTILINE)
    assert f"op model {body.name} in NumpyBinary32" in text
    assert re.search(r"^  v    -?0x[01]\.[0-9a-f]{6}p[+-]\d+ \[[0-9a-f]{8}\]$", text, re.MULTILINE)
    # Of one element other choices than the right one may give torch's bits too.
    changed = re.search(r"with second_moment=(\S+) the result is torch's", text)
    assert changed is not None, text
    assert changed[1] != str(other)
    parts = text.partition("the traces part at\n")[2].splitlines()
    assert len(parts) == 2
    assert all(re.match(r"  (add|mul|fma)\(.*\) = ", part) for part in parts), parts


@pytest.mark.timeout(3600)  # for `--oracle`; each test inside has the ordinary limit
def test_the_default_build_is_reproduced(budget: int, seed: int, compared: Counter[str], tmp_path: Path) -> None:
    """The most telling of these tests, in a process whose torch runs its kernels for any CPU: they contract nothing."""
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": "default",
        SEED_VARIABLE: str(seed),
        BUDGET_VARIABLE: str(budget),
    }
    telling = "(test_torch_is_reproduced or told_apart) and not threads"
    command = [sys.executable, "-m", "pytest", __file__, "-k", telling, "-o", f"cache_dir={tmp_path}"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPU capability: DEFAULT" in done.stdout
    counts = re.findall(
        r"^compared bit for bit, torch\.optim.*: ([0-9,]+) values, 0 mismatches$", done.stdout, re.MULTILINE
    )
    total = sum(int(count.replace(",", "")) for count in counts)
    compared["torch.optim with op models (DEFAULT build)"] += total
    assert total >= 5_000_000 * budget


#: What the compiled steps are tried with; some tensors are smaller than a vector, and some leave a rest of one.
COMPILED_SIZES = (1, 2, 7, 8, 15, 16, 17, 33, 63)
COMPILED = (
    Setting(beta1=0.9, amsgrad=True, weight_decay=0.1),
    Setting(optimizer="AdamW", beta1=0.3, beta2=0.99, lr=0.1, eps=0.0, maximize=True, weight_decay=0.1),
    Setting(beta1=0.0, beta2=0.3, eps=1e-15, amsgrad=True, weight_decay=0.01),
    Setting(optimizer="AdamW", beta1=0.95, beta2=0.95, lr=1e-40),
)
COMPILED_PATHS = {"single": "compiled", "foreach": "compiled-foreach"}


@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.timeout(900)  # for `--oracle`
@pytest.mark.parametrize("path", COMPILED_PATHS)
def test_the_compiled_step_is_reproduced(
    path: str, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    """`torch.compile` of the step: one op model for all elements, unlike any other's."""
    sizes = (7, 33) if budget == 1 else (*COMPILED_SIZES, *LARGE)  # each is a loop of its own to compile
    chosen = [*COMPILED, *([replace(COMPILED[0], tensor_lr=True)] if path == "single" else [])]
    for setting in chosen[: 1 if budget == 1 else None]:
        torch._dynamo.reset()
        states = wild_states(sum(sizes), rng)
        native = Native(replace(setting, path=path), states, sizes, compiled=True)
        for steps_done in STEPS_DONE:
            native.set_steps_done(steps_done)
            states = torch.stack((states[0], wild_states(sum(sizes), rng)[1], *states[2:]))
            states = check_compiled(native, states, compared)


def check_compiled(native: Native, states: Tensor, compared: Counter[str]) -> Tensor:
    """One step of torch and of the compiled op model, from the states that torch holds; gives torch's new ones."""
    implementation = implementation_named(f"torch-2.13-cpu-avx2/{COMPILED_PATHS[native.setting.path]}")
    hyperparameters = Hyperparameters.from_param_group(native.group, "param_groups[0]")
    scalars = implementation.scalars(hyperparameters, native.next_step())
    after = native.step(states[1])
    for name, domain in DOMAINS.items():
        result = step_of(domain, implementation.body, hyperparameters.options, scalars, states)
        wrong = differing(result, after)
        if bool(wrong.any()):
            predicted = Predicted(implementation, hyperparameters.options, scalars)
            places = torch.zeros(states.shape[1], dtype=torch.int64)
            raise AssertionError(explain(name, native, predicted, states, places, result, after))
        compared["torch.compile with its op model"] += result.numel()
    return torch.stack((after[0], states[1], *after[1:]))


def test_no_choice_of_an_op_model_is_left_out_of_the_family() -> None:
    """Each is made by some op model, or it would never be compared with anything."""
    models = [model for known in IMPLEMENTATIONS.values() for model in known.models]
    for field in fields(OpModel):
        choice = type(getattr(models[0], field.name))
        if issubclass(choice, Enum):
            assert {getattr(model, field.name) for model in models} == set(choice), field.name


def test_names_of_op_models_are_unambiguous() -> None:
    by_name: dict[str, OpModel] = {}
    for known in IMPLEMENTATIONS.values():
        for model in known.models:
            assert by_name.setdefault(model.name, model) == model, model.name


@pytest.mark.parametrize(("second", "first"), [(SecondMoment.FMA_PRODUCT, False), (SecondMoment.FMA_SQUARE, True)])
def test_which_second_moment_squares_first(second: SecondMoment, *, first: bool) -> None:
    """`(c*g)*g` stays finite where `g*g` overflows."""
    model = replace(IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"].body, second_moment=second)
    assert second.squares_first is first
    scalars = kernel_scalars(Hyperparameters(1e-3, 0.9, 0.999, 1e-8, 0.0, decoupled=True), 10)
    state = torch.tensor([0.0, 2e19, 0.0, 0.0, 0.0])[:, None]
    assert bool(step_of(TORCH, model, StepOptions(), scalars, state)[2].isinf()) is first
