"""Bad input through the library: one clear line that says what is wrong and where, and nothing else happens."""

import copy
import io
import math
import pickle
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.reference.checkpoint.states import DATA, compressed, sample, state_of
from torch import Tensor

from guarded_moments.reference.checkpoint import compress, load_checkpoint, load_state_dict, parameters_of
from guarded_moments.reference.errors import (
    CheckpointError,
    GuardedMomentsError,
    InvalidClaimError,
    UnsupportedError,
)

ONES = (torch.ones(3), torch.ones(3))


def one_line(error: BaseException) -> str:
    """The text of an error, which is one line."""
    text = str(error)
    assert text
    assert "\n" not in text, text
    return text


def refused(path: Path) -> str:
    """What is said of a file that cannot be read."""
    try:
        loaded = load_state_dict(path)
    except GuardedMomentsError as error:
        said = one_line(error)
        assert str(path) in said
        return said
    # A class that another test has imported loads; then the state_dict is refused, which knows no file.
    with pytest.raises(GuardedMomentsError) as caught:
        parameters_of(loaded)
    return one_line(caught.value)


# Files


def test_a_missing_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "no.pt").endswith("there is no such file")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a directory" in refused(tmp_path)


def test_an_unreadable_name(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / ("x" * 300))


def png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


def zip_of_text() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return buffer.getvalue()


NO_CHECKPOINTS: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"\x80",
    "text": b"hello, world\n",
    "json": b'{"state": {}}',
    "a picture": png(),
    "a zip file": zip_of_text(),
    "half a zip file": zip_of_text()[:40],
    "zeros": bytes(1000),
    "a pickle of a list": pickle.dumps([1, 2]),
}


@pytest.mark.parametrize("content", NO_CHECKPOINTS.values(), ids=NO_CHECKPOINTS)
def test_a_file_that_is_no_checkpoint(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    path.write_bytes(content)

    assert "is no checkpoint of torch.save, or is damaged" in refused(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "holds a list"),
        (torch.ones(3), "holds a Tensor"),
        ({}, "has no 'state' and 'param_groups'"),
        ({"state": {}}, "has no 'state' and 'param_groups'"),
        ({"weight": torch.ones(3)}, "found 'weight'"),
        ({"model": {}, "optimizer": {}}, "there is no optimizer's state_dict (found 'model', 'optimizer')"),
        ({"optimizer_states": [{}]}, "there is no optimizer's state_dict (found 'optimizer_states')"),
        ({"optimizer": {"state": {0: 3}, "param_groups": []}}, "optimizer: state[0] is a int"),
        ({"state": [], "param_groups": []}, "'state' is not a dictionary"),
        ({"state": {}, "param_groups": {}}, "'state' is not a dictionary"),
        ({"state": {}, "param_groups": [3]}, "'state' is not a dictionary"),
        ({"state": {0: 3}, "param_groups": []}, "state[0] is a int"),
    ],
    ids=str,
)
def test_a_checkpoint_that_is_no_state_of_an_optimizer(content: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    torch.save(content, path)
    with pytest.raises(GuardedMomentsError) as caught:
        parameters_of(load_checkpoint(path))

    assert said in one_line(caught.value)


def test_a_real_scheduler_is_no_optimizer() -> None:
    assert "has no 'state' and 'param_groups'" in refused(DATA / "hf_trainer_scheduler.pt")


@pytest.mark.parametrize("name", ["plain_adam_optimizer", "old_int_step"])
def test_a_truncated_checkpoint(name: str, tmp_path: Path) -> None:
    whole, path = (DATA / f"{name}.pt").read_bytes(), tmp_path / "cut.pt"
    for length in [*range(1, 60), *range(60, len(whole), 509), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert "is no checkpoint of torch.save, or is damaged" in refused(path)


def test_a_flipped_bit_in_a_checkpoint_is_refused_or_harmless(tmp_path: Path, budget: int) -> None:
    """torch.load does not compare checksums, so that a flipped bit of a moment is another moment; but never a crash."""
    flip, path = random.Random(20), tmp_path / "flipped.pt"  # noqa: S311 - no secret
    for name in ("plain_adamw_unstepped", "plain_adamw_named_amsgrad", "plain_adam_optimizer"):
        whole = (DATA / f"{name}.pt").read_bytes()
        for _ in range(250 * budget):
            damaged = bytearray(whole)
            damaged[flip.randrange(len(damaged))] ^= 1 << flip.randrange(8)
            path.write_bytes(damaged)
            try:
                parameters_of(load_state_dict(path))
            except GuardedMomentsError as error:
                one_line(error)


@pytest.mark.parametrize("bit", [5536, 5537])
def test_bits_that_once_raised_something_else(bit: int, tmp_path: Path) -> None:
    damaged, path = bytearray((DATA / "plain_adamw_named_amsgrad.pt").read_bytes()), tmp_path / "flipped.pt"
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        load_state_dict(path)
    except GuardedMomentsError as error:
        one_line(error)


# Pickles that need more than tensors


@pytest.mark.parametrize(
    ("name", "offender"),
    [
        ("broken_argparse", "argparse.Namespace"),
        ("broken_numpy_rng", "numpy"),
        ("broken_path", "pathlib"),
        ("broken_whole_objects", "torch.nn"),
        ("fsdp2_raw_rank1", "DTensor"),
    ],
)
def test_classes_that_a_safe_load_refuses_are_named(name: str, offender: str) -> None:
    said = refused(DATA / f"{name}.pt")

    assert offender in said
    if offender == "DTensor" and "torch.distributed.tensor" in sys.modules:
        assert "exp_avg is a DTensor" in said  # another test imported the class, which then loads
    else:
        assert "holds objects that only unsafe loading could restore" in said
        todo = "full_state_dict=True" if offender == "DTensor" else "save optimizer.state_dict() alone"
        assert todo in said


class Trap:
    """An object whose unpickling touches a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("place", ["beside", "in the state", "in a group"])
@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "legacy"])
def test_nothing_in_a_pickle_is_executed(place: str, *, new_format: bool, tmp_path: Path) -> None:
    touched, path = tmp_path / "touched", tmp_path / "trap.pt"
    native = state_of(ONES)
    holder = {"beside": native, "in the state": native["state"][0], "in a group": native["param_groups"][0]}[place]
    holder["trap"] = Trap(touched)
    torch.save(native, path, _use_new_zipfile_serialization=new_format)

    said = refused(path)

    assert not touched.exists()
    if new_format:
        assert "only unsafe loading could restore" in said
    torch.load(path, weights_only=False)  # the trap does work
    assert touched.exists()


# States


def test_other_optimizers_are_refused_by_what_they_lack() -> None:
    said = {}
    for name, options in (
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("RAdam", {}),
        ("NAdam", {}),
        ("Adamax", {}),
        ("Adafactor", {}),
        ("Adagrad", {}),
        ("RMSprop", {}),
    ):
        parameter = torch.nn.Parameter(torch.ones(4, 3))
        optimizer = getattr(torch.optim, name)([parameter], lr=1e-3, **options)
        parameter.grad = torch.ones(4, 3)
        optimizer.step()
        with pytest.raises(CheckpointError) as caught:
            compressed(optimizer.state_dict())
        said[name, *options] = one_line(caught.value)

    assert said == {
        ("SGD",): said["SGD",],
        (
            "SGD",
            "momentum",
        ): "parameter 0 has no 'exp_avg': this is not a state of Adam or AdamW (found 'momentum_buffer')"
        "; it looks like a state of SGD with momentum, or Muon",
        ("RAdam",): said["RAdam",],
        ("NAdam",): said["NAdam",],
        ("Adamax",): "parameter 0 has no 'exp_avg_sq': this is not a state of Adam or AdamW"
        " (found 'step', 'exp_avg', 'exp_inf'); it looks like a state of Adamax",
        ("Adafactor",): "parameter 0 has no 'exp_avg': this is not a state of Adam or AdamW"
        " (found 'step', 'row_var', 'col_var')"
        "; it looks like a state of Adafactor (torch), which keeps rows and columns of the second moment",
        ("Adagrad",): "parameter 0 has no 'exp_avg': this is not a state of Adam or AdamW (found 'step', 'sum')"
        "; it looks like a state of Adagrad",
        ("RMSprop",): "parameter 0 has no 'exp_avg': this is not a state of Adam or AdamW (found 'step', 'square_avg')"
        "; it looks like a state of RMSprop or Adadelta",
    }
    for name in ("SGD", "RAdam", "NAdam"):
        assert said[name,].startswith("param_groups[0] has no '")
        assert "this is not a param_group of Adam or AdamW" in said[name,]


def without(native: dict[str, Any], *path: object) -> dict[str, Any]:
    """A copy with one thing taken out."""
    changed: Any = copy.deepcopy(native)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    result: dict[str, Any] = changed
    return result


def changed(native: dict[str, Any], value: object, *path: object) -> dict[str, Any]:
    """A copy with one thing replaced or put in."""
    result: Any = copy.deepcopy(native)
    holder = result
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return dict(result)


ON = True
ADAM = state_of(ONES, (torch.ones(2, 2), torch.ones(2, 2)))

BAD_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "empty dictionary": ({}, "expected an optimizer's state_dict"),
    "no param_groups": ({"state": {}}, "expected an optimizer's state_dict"),
    "no step": (without(ADAM, "state", 1, "step"), "state[1] has no 'step'"),
    "no exp_avg": (without(ADAM, "state", 1, "exp_avg"), "parameter 1 has no 'exp_avg'"),
    "no exp_avg_sq": (without(ADAM, "state", 1, "exp_avg_sq"), "parameter 1 has no 'exp_avg_sq'"),
    "wrong shape": (
        changed(ADAM, torch.ones(4), "state", 1, "exp_avg_sq"),
        "state[1]: exp_avg has shape (2, 2) but exp_avg_sq (4,)",
    ),
    "a list for a moment": (changed(ADAM, [1.0], "state", 0, "exp_avg"), "parameter 0: exp_avg is a list"),
    "None for a moment": (changed(ADAM, None, "state", 0, "exp_avg"), "parameter 0: exp_avg is a NoneType"),
    "a sparse moment": (changed(ADAM, torch.ones(3).to_sparse(), "state", 0, "exp_avg"), "torch.sparse_coo"),
    "a moment without data": (changed(ADAM, torch.ones(3, device="meta"), "state", 0, "exp_avg"), "not supported"),
    "text for step": (changed(ADAM, "3", "state", 0, "step"), "state[0]: step is '3', expected a number"),
    "no number for step": (changed(ADAM, ON, "state", 0, "step"), "state[0]: step is True"),
    "negative step": (changed(ADAM, -1, "state", 0, "step"), "state[0]: step is -1"),
    "NaN step": (changed(ADAM, torch.tensor(math.nan), "state", 0, "step"), "state[0]: step is"),
    "infinite step": (changed(ADAM, math.inf, "state", 0, "step"), "state[0]: step is inf"),
    "two steps": (changed(ADAM, torch.ones(2), "state", 0, "step"), "expected one number"),
    "complex step": (changed(ADAM, torch.tensor(1j), "state", 0, "step"), "expected one number"),
    "a parameter of no group": (
        changed(ADAM, [0], "param_groups", 0, "params"),
        "state[1] belongs to no param_group",
    ),
    "no params": (without(ADAM, "param_groups", 0, "params"), "param_groups[0] has no list of 'params'"),
    "no lr": (without(ADAM, "param_groups", 0, "lr"), "param_groups[0] has no 'lr'"),
    "no betas": (without(ADAM, "param_groups", 0, "betas"), "param_groups[0] has no 'betas'"),
    "one beta": (changed(ADAM, (0.9,), "param_groups", 0, "betas"), "param_groups[0]: betas is (0.9,)"),
    "beta of 1": (changed(ADAM, (0.9, 1.0), "param_groups", 0, "betas"), "betas[1] is 1.0"),
    "negative beta": (changed(ADAM, (-0.1, 0.9), "param_groups", 0, "betas"), "betas[0] is -0.1"),
    "NaN beta": (changed(ADAM, (0.9, math.nan), "param_groups", 0, "betas"), "betas[1] is nan"),
    "text for lr": (changed(ADAM, "fast", "param_groups", 0, "lr"), "param_groups[0]: lr is 'fast'"),
    "negative lr": (changed(ADAM, -1e-3, "param_groups", 0, "lr"), "param_groups[0]: lr is -0.001"),
    "NaN lr": (changed(ADAM, math.nan, "param_groups", 0, "lr"), "param_groups[0]: lr is nan"),
    "infinite lr": (changed(ADAM, math.inf, "param_groups", 0, "lr"), "param_groups[0]: lr is inf"),
    "lr of zero": (changed(ADAM, 0.0, "param_groups", 0, "lr"), "state[0]: lr is 0, as a finished schedule leaves it"),
    "lr that vanishes": (changed(ADAM, 1e-50, "param_groups", 0, "lr"), "state[0]: lr 1e-50 gives a step size of"),
    "lr of several": (changed(ADAM, torch.ones(2), "param_groups", 0, "lr"), "only one float32 is supported"),
    "lr in float64": (
        changed(ADAM, torch.tensor(1e-3, dtype=torch.float64), "param_groups", 0, "lr"),
        "only one float32 is supported",
    ),
    "eps of zero": (changed(ADAM, 0.0, "param_groups", 0, "eps"), "state[0]: eps is 0 in binary32"),
    "eps that vanishes": (changed(ADAM, 1e-46, "param_groups", 0, "eps"), "state[0]: eps is 0 in binary32"),
    "eps too small": (changed(ADAM, 1e-30, "param_groups", 0, "eps"), "so small that rounding alone"),
    "a pair for eps": (
        changed(ADAM, (1e-30, 1e-3), "param_groups", 0, "eps"),
        "param_groups[0]: eps is (1e-30, 0.001)",
    ),
    "negative eps": (changed(ADAM, -1e-8, "param_groups", 0, "eps"), "param_groups[0]: eps is -1e-08"),
    "negative weight_decay": (changed(ADAM, -1.0, "param_groups", 0, "weight_decay"), "weight_decay is -1.0"),
    "8-bit state": (
        changed(ADAM, {"step": 3, "__bnb_optimizer_quant_state__": {}}, "state", 0),
        "parameter 0 has no 'exp_avg': this is not a state of Adam or AdamW (found 'step', '__bnb_optimizer",
    ),
    "differentiable": (changed(ADAM, ON, "param_groups", 0, "differentiable"), "differentiable"),
    "capturable": (changed(ADAM, ON, "param_groups", 0, "capturable"), "capturable"),
}


@pytest.mark.parametrize(("native", "said"), BAD_STATES.values(), ids=BAD_STATES)
def test_a_bad_state_is_refused_by_name_and_place(native: dict[str, Any], said: str) -> None:
    with pytest.raises(GuardedMomentsError) as caught:
        compress(native, tolerance=0.01, grad_bound=1.0)

    assert said in one_line(caught.value)


def test_a_tensor_subclass_is_refused() -> None:
    class Packed(Tensor):
        """As quantised optimizers keep their moments."""

    moment = torch.ones(3).as_subclass(Packed)
    with pytest.raises(UnsupportedError, match=r"parameter 0: exp_avg is a Packed"):
        compressed(state_of((moment, torch.ones(3))))


def test_eps_of_zero_is_fine_with_nothing_to_encode() -> None:
    for native in (sample("plain_adamw_unstepped"), state_of((torch.empty(0), torch.empty(0)))):
        for group in native["param_groups"]:
            group["eps"] = 0.0
        assert compressed(native).tensors == ()


# Claims


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, math.nan, -math.inf, math.inf])
def test_a_tolerance_that_makes_no_claim(value: float) -> None:
    with pytest.raises(InvalidClaimError, match=r"tolerance is .*: expected a positive, finite number"):
        compressed(ADAM, tolerance=value)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, math.nan, -math.inf])
def test_a_gradient_bound_that_makes_no_claim(value: float) -> None:
    with pytest.raises(InvalidClaimError, match=r"grad-bound is .*: expected a positive number, or inf"):
        compressed(ADAM, grad_bound=value)


def test_a_gradient_bound_above_the_overflow_limit() -> None:
    with pytest.raises(InvalidClaimError, match=r"state\[0\]: grad-bound 1e\+30 is above the overflow limit"):
        compressed(ADAM, grad_bound=1e30)


@pytest.mark.parametrize("lr", [0.0, -1e-3, math.nan, math.inf, 1e-50, 1e39])
def test_a_learning_rate_that_counts_nothing(lr: float) -> None:
    with pytest.raises(GuardedMomentsError, match=r"state\[0\]: lr .*pass the learning rate") as caught:
        compressed(ADAM, lr=lr)
    one_line(caught.value)


def test_an_unknown_op_model_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"op model 'mine' is not known to this version; known are: torch-2\.13"):
        compressed(ADAM, implementation="mine")


def test_what_was_refused_is_unchanged() -> None:
    native = state_of(ONES)
    before = copy.deepcopy(native)
    with pytest.raises(InvalidClaimError):
        compressed(native, tolerance=-1.0)
    compressed(native)

    assert native["state"][0].keys() == before["state"][0].keys()
    assert torch.equal(native["state"][0]["exp_avg"], before["state"][0]["exp_avg"])
