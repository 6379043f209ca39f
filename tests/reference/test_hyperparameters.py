"""What a param_group fixes: read as torch saves it, and refused where torch or this package cannot go on."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.against_torch import OPTIMIZERS, PATHS, Setting

from guarded_moments.reference.adam import Decay
from guarded_moments.reference.errors import CheckpointError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters, next_step


def group_of(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a file may hold
    """A param_group as torch saves it, with changes."""
    group: dict[str, Any] = torch.optim.Adam([torch.zeros(1)]).state_dict()["param_groups"][0]
    return group | changes


def read(**changes: Any) -> Hyperparameters:  # noqa: ANN401 - as above
    return Hyperparameters.from_param_group(group_of(**changes), "param_groups[3]")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("path", PATHS)
def test_a_group_of_torch_is_read(path: str, optimizer: str) -> None:
    setting = Setting(
        path=path,
        optimizer=optimizer,
        lr=0.01,
        beta1=0.8,
        beta2=0.99,
        eps=1e-6,
        weight_decay=0.1,
        amsgrad=True,
        maximize=True,
    )
    group = setting.make([torch.nn.Parameter(torch.zeros(1))]).state_dict()["param_groups"][0]
    assert Hyperparameters.from_param_group(group, "param_groups[0]") == Hyperparameters(
        lr=0.01,
        beta1=0.8,
        beta2=0.99,
        eps=1e-6,
        weight_decay=0.1,
        decoupled=optimizer == "AdamW",
        amsgrad=True,
        maximize=True,
        lr_is_tensor=False,
        fused=path == "fused",
    )


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_learning_rate_in_a_tensor_is_its_exact_value(shape: tuple[int, ...]) -> None:
    found = read(lr=torch.full(shape, 1e-3))
    assert found.lr_is_tensor
    assert found.lr == float(np.float32(1e-3))


def test_betas_in_tensors_are_their_exact_values() -> None:
    found = read(betas=(torch.tensor(0.9), torch.tensor([0.999])))
    assert found.betas_are_tensors
    assert (found.beta1, found.beta2) == (float(np.float32(0.9)), float(np.float32(0.999)))


@pytest.mark.parametrize(
    ("beta1", "from_end"), [(0.0, True), (0.3, True), (0.5, True), (math.nextafter(0.5, 1), True), (0.51, False)]
)
def test_a_weight_of_one_half_is_interpolated_from_the_end(beta1: float, *, from_end: bool) -> None:
    """The kernel compares the rounded weight."""
    assert read(betas=(beta1, 0.999)).options.interpolate_from_end is from_end


@pytest.mark.parametrize(
    ("weight_decay", "decoupled", "decay"),
    [(0, False, Decay.NONE), (0.0, True, Decay.NONE), (0.1, False, Decay.L2), (0.1, True, Decay.DECOUPLED)],
)
def test_which_decay(weight_decay: float, *, decoupled: bool, decay: Decay) -> None:
    found = read(weight_decay=weight_decay, decoupled_weight_decay=decoupled).options
    assert found.decay is decay


def test_a_group_of_before_an_option_existed_has_its_default() -> None:
    group = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "params": [0]}
    found = Hyperparameters.from_param_group(group, "param_groups[0]")
    assert found == Hyperparameters(1e-3, 0.9, 0.999, 1e-8, 0.0, decoupled=False)


@pytest.mark.parametrize("key", ["lr", "betas", "eps", "weight_decay", "amsgrad"])
def test_a_missing_hyperparameter_is_named(key: str) -> None:
    group = group_of()
    del group[key]
    with pytest.raises(CheckpointError, match=rf"param_groups\[3\] has no '{key}': this is not a param_group of Adam"):
        Hyperparameters.from_param_group(group, "param_groups[3]")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (torch.optim.SGD, r"has no 'betas'.*'momentum'"),
        (torch.optim.RMSprop, r"has no 'betas'.*'alpha'"),
        (torch.optim.RAdam, r"has no 'amsgrad'"),  # whose state and other hyperparameters have Adam's names
        (torch.optim.NAdam, r"has no 'amsgrad'"),
        (torch.optim.Adamax, r"has no 'amsgrad'"),
    ],
)
def test_a_group_of_another_optimizer_is_refused(optimizer: Callable[..., torch.optim.Optimizer], message: str) -> None:
    group = optimizer([torch.zeros(1)], lr=0.1).state_dict()["param_groups"][0]
    with pytest.raises(CheckpointError, match=message):
        Hyperparameters.from_param_group(group, "param_groups[0]")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": math.nan}, r"lr is nan, expected a number in \[0, 3.40282e\+38\)"),
        ({"lr": 2.0**128}, "lr is 3.402823669209385e\\+38, expected"),
        ({"eps": 1e39}, "eps is 1e\\+39, expected"),
        ({"weight_decay": 1e39}, "weight_decay is 1e\\+39, expected"),
        ({"fused": True, "foreach": True}, "fused=True and foreach=True exclude each other"),
        ({"foreach": True, "lr": torch.tensor(1e-3)}, "lr in a tensor with foreach=True and capturable=False"),
        (
            {"foreach": True, "betas": (torch.tensor(0.9), torch.tensor(0.99))},
            "betas in a tensor with foreach=True and capturable=False",
        ),
        ({"lr": torch.tensor(math.nan)}, "lr is nan, expected"),
        ({"lr": -1e-3}, "lr is -0.001, expected"),
        ({"lr": math.inf}, "lr is inf, expected"),
        ({"lr": "0.001"}, "lr is '0.001', expected a number"),
        ({"lr": None}, "lr is None, expected a number"),
        ({"lr": True}, "lr is True, expected a number"),
        ({"betas": (1.0, 0.999)}, r"betas\[0\] is 1.0, expected a number in \[0, 1\)"),
        ({"betas": (0.9, 1.5)}, r"betas\[1\] is 1.5, expected a number in \[0, 1\)"),
        ({"betas": (-0.1, 0.999)}, r"betas\[0\] is -0.1, expected"),
        ({"betas": (0.9, math.nan)}, r"betas\[1\] is nan, expected"),
        ({"betas": (0.9, None)}, r"betas\[1\] is None, expected a number"),
        ({"betas": (0.9,)}, r"betas is \(0.9,\), expected two numbers"),
        ({"betas": (0.9, 0.99, 0.999)}, "betas is .*, expected two numbers"),
        ({"betas": 0.9}, "betas is 0.9, expected two numbers"),
        ({"betas": (0.9, torch.tensor(0.999))}, "one of betas is a tensor and one is not, which torch refuses"),
        ({"betas": (torch.tensor(1.0), torch.tensor(0.999))}, r"betas\[0\] is 1.0, expected a number in \[0, 1\)"),
        ({"eps": -1e-8}, "eps is -1e-08, expected"),
        ({"eps": math.inf}, "eps is inf, expected"),
        ({"eps": [1e-8]}, r"eps is \[1e-08\], expected a number"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1, expected"),
        ({"weight_decay": math.nan}, "weight_decay is nan, expected"),
    ],
)
def test_a_value_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^param_groups\[3\]: {message}"):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"betas": (torch.tensor(0.9, dtype=torch.float64), 0.999)}, r"betas\[0\] is a torch.float64 tensor"),
        ({"betas": (0.9, torch.tensor([0.9, 0.999]))}, r"betas\[1\] is a torch.float32 tensor of shape \(2,\)"),
        ({"differentiable": True}, "differentiable=True is not supported"),
        ({"lr": torch.tensor(1e-3, dtype=torch.float16)}, r"lr is a torch.float16 tensor of shape \(\)"),
        ({"lr": torch.tensor(1e-3, dtype=torch.float64)}, r"lr is a torch.float64 tensor of shape \(\)"),
        ({"lr": torch.tensor([1e-3, 1e-3])}, r"lr is a torch.float32 tensor of shape \(2,\)"),
        ({"lr": torch.tensor([])}, r"lr is a torch.float32 tensor of shape \(0,\)"),
    ],
)
def test_what_is_not_modelled_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^param_groups\[3\]: {message}"):
        read(**changes)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_next_step_of_a_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for done in (0, 1, 99):
        assert next_step(torch.full(shape, done, dtype=dtype), "here") == done + 1


@pytest.mark.parametrize("done", [0, 1, 99, 0.0, 99.0])
def test_the_next_step_of_a_number(done: float) -> None:
    assert next_step(done, "here") == done + 1


@pytest.mark.parametrize(
    ("step", "following"),
    [
        (torch.tensor(2.0**24 - 1), 2.0**24),
        (torch.tensor(2.0**24), 2.0**24),
        (torch.tensor(2.0**24, dtype=torch.float64), 2.0**24 + 1),
        (torch.tensor(2**24), 2.0**24 + 1),
        (2**24, 2.0**24),  # `load_state_dict` makes it a float32 tensor
        (2.0**24, 2.0**24),
        (torch.tensor(256.0, dtype=torch.bfloat16), 256.0),
        (torch.tensor(2048.0, dtype=torch.float16), 2048.0),
    ],
)
def test_a_step_sticks_where_its_format_does(step: torch.Tensor | float, following: float) -> None:
    assert next_step(step, "here") == following


def test_the_next_step_leaves_the_state_alone() -> None:
    step = torch.tensor(7.0, requires_grad=True)
    assert next_step(step, "here") == 8
    assert step == 7


@pytest.mark.parametrize("done", [0, 7, 2**24])
@pytest.mark.parametrize("path", PATHS)
def test_the_next_step_of_a_number_is_torchs(path: str, done: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = Setting(path=path).make([parameter])
    state = {"step": done, "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: state}})
    parameter.grad = torch.ones(1)
    optimizer.step()
    assert float(optimizer.state[parameter]["step"]) == next_step(done, "here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64])
@pytest.mark.parametrize("done", [0, 7, 2**24 - 1, 2**24, 2**24 + 1])
@pytest.mark.parametrize("path", PATHS)
def test_the_next_step_of_a_tensor_is_torchs(path: str, done: int, dtype: torch.dtype) -> None:
    """Fused paths make it float32 when it is loaded, so that it sticks at 2**24; others leave it as it is."""
    step = torch.tensor(done).to(dtype)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = Setting(path=path).make([parameter])
    state = {"step": step.clone(), "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: state}})
    parameter.grad = torch.ones(1)
    if path == "foreach" and not dtype.is_floating_point:
        with pytest.raises(RuntimeError, match="must be on the same device and the same dtype"):
            optimizer.step()
        return
    optimizer.step()
    assert float(optimizer.state[parameter]["step"]) == next_step(step, "here", fused=path == "fused")


@pytest.mark.parametrize("form", [{"lr": torch.tensor(1e-3)}, {"betas": (torch.tensor(0.9), torch.tensor(0.99))}])
def test_what_is_refused_of_foreach_is_taken_with_capturable_and_of_other_paths(form: dict[str, Any]) -> None:
    """As by torch: of these only the foreach path that is not capturable refuses tensors."""
    for options in (form, form | {"fused": True}, form | {"foreach": True, "capturable": True}):
        assert read(**options).lr_is_tensor is ("lr" in form)
        torch.optim.Adam([torch.zeros(1)], **options)
    with pytest.raises(ValueError, match="not supported for capturable=False and foreach=True"):
        torch.optim.Adam([torch.zeros(1)], **form, foreach=True)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (None, "step is None, expected a number"),
        ("3", "step is '3', expected a number"),
        (True, "step is True, expected a number"),
        ([3], r"step is \[3\], expected a number"),
        (math.nan, "step is nan, expected a finite count of at least 0"),
        (math.inf, "step is inf, expected a finite count"),
        (-1, "step is -1, expected a finite count"),
        (-0.5, "step is -0.5, expected a finite count"),
        (torch.tensor(math.nan), r"step is tensor\(nan\), expected a finite count"),
        (torch.tensor(math.inf), r"step is tensor\(inf\), expected a finite count"),
        (torch.tensor(-3.0), r"step is tensor\(-3.\), expected a finite count"),
        (torch.tensor(255, dtype=torch.uint8), "step is .*, expected a finite count"),  # wraps to 0, in torch too
        (torch.tensor([1.0, 2.0]), r"step is a tensor of shape \(2,\), expected one number"),
        (torch.tensor([]), r"step is a tensor of shape \(0,\), expected one number"),
        (torch.tensor(1j), r"step is a tensor of shape \(\), expected one number"),
    ],
)
def test_what_is_no_count_of_updates_is_refused(step: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^state\[4\]: {message}"):
        next_step(step, "state[4]")
