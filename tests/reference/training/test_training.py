"""Saving, loading and watching in a training loop: what torch would take silently is found."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from guarded_moments.reference.checkpoint import load_state_dict, parameters_of, read
from guarded_moments.reference.clipping import bound_of_clipped_norm
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError, PlatformError
from guarded_moments.reference.implementations import capability_of_this_machine
from guarded_moments.reference.training import guard_checkpoints, load_guarded, save_guarded

CLAIM: dict[str, Any] = {"tolerance": 0.01, "grad_bound": 1.0}
Made = tuple[nn.Module, torch.optim.Optimizer]


@pytest.fixture(autouse=True)
def native_kernels() -> None:
    """Skips where the op model of this machine's torch is not known."""
    try:
        capability_of_this_machine()
    except PlatformError as error:
        pytest.skip(str(error))


def made(
    dtype: torch.dtype = torch.float32,
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    *,
    named: bool = False,
    **options: object,
) -> Made:
    """A model of two layers of one shape, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9)).to(dtype)
    parameters = list(model.named_parameters()) if named else list(model.parameters())
    return model, kind(parameters, **{"lr": 1e-3, **options})


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5, scale: float = 1.0) -> None:
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        inputs = torch.randn(16, 9, dtype=next(model.parameters()).dtype)
        (scale * model(inputs)).square().mean().backward()
        optimizer.step()


def trained(**options: Any) -> Made:  # noqa: ANN401 - of `made`
    model, optimizer = made(**options)
    train(model, optimizer)
    return model, optimizer


def resumed(model: nn.Module, **options: Any) -> Made:  # noqa: ANN401 - as above
    """Another process: the same model with its weights loaded, and a fresh optimizer."""
    other, optimizer = made(**options)
    other.load_state_dict(model.state_dict())
    return other, optimizer


def test_the_first_update_after_loading_is_within_the_tolerance_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    other, restored = resumed(model)

    first = load_guarded(restored, tmp_path / "o.gmc")
    assert (first.seen, first.holds) == (False, False)
    with caplog.at_level(logging.INFO, "guarded_moments"):
        train(model, optimizer, 1)
        train(other, restored, 1)

    assert first.holds
    assert 0 < first.largest < 1
    assert "the guarantee held for the first update (largest gradient" in caplog.text
    moved = [
        float((a - b).detach().abs().max()) / 1e-3 for a, b in zip(model.parameters(), other.parameters(), strict=True)
    ]
    assert 0 < max(moved) <= 0.01 + 1e-4, "and the parameter's own rounding"
    before = first.sentence()
    train(other, restored, 1, scale=1e6)
    assert first.sentence() == before, "only the first is watched"


def test_a_gradient_above_the_bound_makes_the_guarantee_void_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = trained(named=True)
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    other, restored = resumed(model, named=True)
    first = load_guarded(restored, tmp_path / "o.gmc")

    train(other, restored, 1, scale=1e3)

    assert not first.holds
    assert first.largest > 1
    assert first.where in dict(other.named_parameters())
    (record,) = [record for record in caplog.records if record.name == "guarded_moments"]
    assert record.levelno == logging.WARNING
    assert f"a gradient of {first.where} is" in record.getMessage()
    assert "above 1" in record.getMessage()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e25])
def test_an_infinite_bound_ends_at_the_overflow_limit(tmp_path: Path, value: float) -> None:
    _, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", tolerance=0.01, grad_bound=float("inf"))
    model, restored = made()
    first = load_guarded(restored, tmp_path / "o.gmc")
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)

    restored.step()

    assert first.void_because


def test_l2_decay_enters_the_gradient_and_adamws_does_not(tmp_path: Path) -> None:
    for kind, holds in ((torch.optim.Adam, False), (torch.optim.AdamW, True)):
        model, optimizer = made(kind=kind, weight_decay=0.1)
        train(model, optimizer)
        save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
        with torch.no_grad():
            next(model.parameters()).fill_(20.0)  # 0.1 * 20 is above the bound, without any gradient
        first = load_guarded(optimizer, tmp_path / "o.gmc")
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert first.holds is holds, first.sentence()
        assert holds or first.largest == pytest.approx(2.0)


def test_another_path_of_torch_or_other_hyperparameters_make_it_void(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    for changes, said in (
        ({"fused": True}, "this run follows"),
        ({"eps": 1e-6}, "eps of"),
        ({"betas": (0.8, 0.9)}, "betas of"),
    ):
        other, restored = resumed(model)
        first = load_guarded(restored, tmp_path / "o.gmc")
        restored.param_groups[0].update(changes)
        train(other, restored, 1)
        assert not first.holds
        assert said in first.sentence()


def test_another_learning_rate_is_assumed_to_scale(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    first = load_guarded(optimizer, tmp_path / "o.gmc")
    optimizer.param_groups[0]["lr"] = 5e-4
    train(model, optimizer, 1)
    assert first.holds
    assert "assumed: deviations scale with lr, which is 0.0005 and not 0.001" in first.sentence()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("scale", "holds"), [(1.0, True), (1e3, False)])
def test_gradients_that_a_closure_makes_are_seen(tmp_path: Path, scale: float, *, holds: bool, named: bool) -> None:
    """As Lightning calls `step`: before the closure there are no gradients."""
    model, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    first = load_guarded(optimizer, tmp_path / "o.gmc")
    optimizer.zero_grad()

    def closure() -> float:
        loss = (scale * model(torch.ones(16, 9))).square().mean()
        loss.backward()
        return float(loss.detach())

    loss = optimizer.step(closure=closure) if named else optimizer.step(closure)

    assert loss is not None
    assert first.largest > 0
    assert first.holds is holds, first.sentence()


def test_an_update_without_gradients_is_said_to_be_one(tmp_path: Path) -> None:
    _, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    first = load_guarded(optimizer, tmp_path / "o.gmc")
    optimizer.zero_grad()
    optimizer.step()
    assert "no guarded parameter had a gradient" in first.sentence()


def test_a_step_that_is_skipped_is_no_update(tmp_path: Path) -> None:
    model, optimizer = trained(fused=True)  # the path that unscales by itself
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    first = load_guarded(optimizer, tmp_path / "o.gmc")
    optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]  # as GradScaler sets it
    train(model, optimizer, 1, scale=1e6)
    assert not first.seen
    del optimizer.found_inf  # type: ignore[attr-defined]
    train(model, optimizer, 1)
    assert first.holds


# What load_state_dict takes silently


def test_float32_moments_stay_float32_over_bfloat16_parameters(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    half = copy.deepcopy(model).bfloat16()
    restored = torch.optim.AdamW(half.parameters(), lr=1e-3)

    load_guarded(restored, tmp_path / "o.gmc")

    for parameter, native in zip(half.parameters(), model.parameters(), strict=True):
        for moment in ("exp_avg", "exp_avg_sq"):
            loaded = restored.state[parameter][moment]
            assert loaded.dtype is torch.float32, "torch alone makes it bfloat16"
            assert torch.allclose(loaded, optimizer.state[native][moment], rtol=0.2, atol=0)


def exchanged(model: nn.Module, *, named: bool) -> torch.optim.Optimizer:
    """An optimizer over the same parameters with the two layers in the other order: the shapes are the same."""
    parameters = list(model.named_parameters()) if named else list(model.parameters())
    return torch.optim.AdamW([*parameters[2:], *parameters[:2]], lr=1e-3)


@pytest.mark.parametrize("named", [True, False])
def test_parameters_in_another_order_are_found_out(tmp_path: Path, *, named: bool) -> None:
    model, optimizer = trained(named=named)
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    restored = exchanged(model, named=named)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch takes it
    restored = exchanged(model, named=named)

    said = r"'0\.weight' where the optimizer has '2\.weight'" if named else "the parameters are in another order"
    with pytest.raises(CheckpointError, match=said):
        load_guarded(restored, tmp_path / "o.gmc")
    assert not restored.state


def test_moments_of_another_shape_are_found_out(tmp_path: Path) -> None:
    _, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    model = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 3))
    restored = torch.optim.AdamW(model.parameters())

    with pytest.raises(CheckpointError, match=r"exp_avg has shape \(9, 9\), the parameter \(3, 9\)"):
        load_guarded(restored, tmp_path / "o.gmc")
    assert not restored.state


def test_a_state_of_another_model_is_found_out(tmp_path: Path) -> None:
    _, optimizer = trained()
    save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM)
    restored = torch.optim.AdamW(nn.Linear(9, 9).parameters())

    with pytest.raises(CheckpointError, match=r"groups of \[4\] parameters, the optimizer of \[2\]"):
        load_guarded(restored, tmp_path / "o.gmc")


def test_a_damaged_file_leaves_the_optimizer_as_it_was(tmp_path: Path) -> None:
    _, optimizer = trained()
    path = tmp_path / "o.gmc"
    save_guarded(optimizer, path, **CLAIM)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    before = copy.deepcopy(optimizer.state_dict())

    with pytest.raises(GuardedMomentsError, match=r"o\.gmc: is damaged"):
        load_guarded(optimizer, path)
    after = optimizer.state_dict()
    assert all(torch.equal(after["state"][k]["exp_avg"], before["state"][k]["exp_avg"]) for k in before["state"])


# Hooks


def test_with_hooks_a_checkpoint_is_compressed_and_loads(tmp_path: Path) -> None:
    model, optimizer = made()
    guard_checkpoints(optimizer, **CLAIM)
    optimizer.load_state_dict(optimizer.state_dict())  # as accelerate does before training: nothing to guard yet
    train(model, optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    moments = copy.deepcopy([optimizer.state[p]["exp_avg"] for p in model.parameters()])

    loaded = torch.load(tmp_path / "checkpoint.pt")  # weights_only
    other, restored = resumed(model)
    guarded = guard_checkpoints(restored, **CLAIM)
    restored.load_state_dict(loaded["optimizer"])

    assert guarded.first_update is not None
    for parameter, native in zip(other.parameters(), moments, strict=True):
        ours: Tensor = restored.state[parameter]["exp_avg"]
        assert torch.allclose(ours, native, rtol=0.2, atol=0)
        assert not torch.equal(ours, native)
    train(other, restored, 1)
    assert guarded.first_update.holds


def test_hooks_leave_the_live_state_and_plain_checkpoints_alone() -> None:
    model, optimizer = trained()
    plain = copy.deepcopy(optimizer.state_dict())
    guarded = guard_checkpoints(optimizer, **CLAIM)
    first, second = optimizer.state_dict(), optimizer.state_dict()

    assert torch.equal(first["guarded_moments"], second["guarded_moments"])
    for index, parameter in enumerate(model.parameters()):
        assert torch.equal(optimizer.state[parameter]["exp_avg"], plain["state"][index]["exp_avg"])
    optimizer.load_state_dict(plain)
    assert guarded.first_update is None
    guarded.remove()
    assert optimizer.state_dict()["state"].keys() == plain["state"].keys()


def test_a_compressed_checkpoint_is_refused_loudly_without_the_hooks() -> None:
    _, optimizer = trained()
    guard_checkpoints(optimizer, **CLAIM)
    _, other = made()

    with pytest.raises(ValueError, match="different number of parameter groups"):
        other.load_state_dict(optimizer.state_dict())


def test_a_file_saved_in_training_is_one_for_the_command_line(tmp_path: Path) -> None:
    _, optimizer = trained()
    guard_checkpoints(optimizer, **CLAIM)
    state = save_guarded(optimizer, tmp_path / "o.gmc", **CLAIM, codec="bf16")

    again = read(tmp_path / "o.gmc")
    assert [tensor.codec.name for tensor in again.tensors] == ["bf16"] * 4
    assert again.coordinates == state.coordinates == 180
    torch.save(optimizer.state_dict(), tmp_path / "hooked.pt")
    with pytest.raises(CheckpointError, match=r"is compressed already: it holds a \.gmc file under 'guarded_moments'"):
        parameters_of(load_state_dict(tmp_path / "hooked.pt"))


# Bounds from clipping, and of param_groups


def test_the_bound_of_a_clipped_norm_holds_for_whatever_arrives(tmp_path: Path) -> None:
    """One coordinate alone has all of the norm, which is the most that it can be."""
    model, optimizer = trained()
    bound = bound_of_clipped_norm(0.1)
    save_guarded(optimizer, tmp_path / "o.gmc", tolerance=0.01, grad_bound=bound)
    other, restored = resumed(model)
    first = load_guarded(restored, tmp_path / "o.gmc")

    for parameter in other.parameters():
        parameter.grad = torch.zeros_like(parameter)
    gradient = next(other.parameters()).grad
    assert gradient is not None
    gradient[0, 0] = 3e7
    torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1)
    restored.step()

    assert first.holds, first.sentence()
    assert 0.0999 < first.largest <= bound


def test_each_param_group_is_compared_with_its_own_bound(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(9, 9)
    groups: list[dict[str, Any]] = [{"params": [model.weight]}, {"params": [model.bias]}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    train(model, optimizer)
    save_guarded(optimizer, tmp_path / "o.gmc", tolerance=0.01, grad_bound=[1.0, 0.5])

    for value, void in ((0.4, []), (0.8, ["a gradient of param_groups[1]['params'][0] is 0.8, above 0.5"])):
        restored = torch.optim.AdamW(groups, lr=1e-3)
        first = load_guarded(restored, tmp_path / "o.gmc")
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        restored.step()
        assert first.void_because == void
        assert first.sentence().endswith("bound 0.5 and more, by param_group)")
