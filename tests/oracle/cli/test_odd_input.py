"""Odd but valid checkpoints: what the guard does not cover is stored exactly, bit for bit, counted and said."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.oracle.cli.checkpoints import changed, numel, only, same_bits, trained, updates
from tests.oracle.cli.running import CLAIM, Ran, read_json, run_well
from torch import Tensor, nn

from guarded_moments.reference.checkpoint import load_state_dict, read
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.floats import from_bits

NAN, INF = float("nan"), float("inf")

#: What is planted: the first moment, the second, and why it escapes. Bits, where a float would lose them.
PLANTED: tuple[tuple[float | int, float | int, str], ...] = (
    (NAN, 1e-8, "NaN or infinity"),
    (1e-4, NAN, "NaN or infinity"),
    (INF, 1e-8, "NaN or infinity"),
    (-INF, 1e-8, "NaN or infinity"),
    (1e-4, INF, "NaN or infinity"),
    (-0.0, NAN, "NaN or infinity"),
    (0x7FC12345, 1e-8, "NaN or infinity"),
    (0xFFC00001, 1e-8, "NaN or infinity"),
    (1e-4, 0x7F800001, "NaN or infinity"),  # signalling
    (1e-4, -1e-8, "negative second moment"),
    (1e-4, -0.0, "negative second moment"),
    (-0.0, 1e-8, "minus zero"),
    (-0.0, 0.0, "minus zero"),
    (1e30, 1e-8, "outside the guard's range"),
    (1e-4, 1e35, "outside the guard's range"),
)
#: Within the guard's domain, however extreme: codes or escapes, as it decides.
EXTREME = ((0.0, 0.0), (1e-42, 1e-44), (-1e-45, 1e-45), (1e-4, 0.0), (0.0, 1e-8), (1e-38, 1e-38), (1e18, 1e30))


def float32(value: float) -> Tensor:
    """One value; an integer stands for its bits."""
    if isinstance(value, int):
        return torch.tensor([value if value < 2**31 else value - 2**32], dtype=torch.int32).view(torch.float32)
    return torch.tensor([value])


def planted(state_dict: StateDict) -> None:
    """Put the odd values at the front of the first parameter's moments."""
    pairs = [*((m, v) for m, v, _ in PLANTED), *EXTREME]
    for name, column in (("exp_avg", 0), ("exp_avg_sq", 1)):
        moment = state_dict["state"][0][name]
        values = torch.cat([float32(pair[column]) for pair in pairs])
        moment.view(-1).view(torch.int32)[: len(pairs)] = values.view(torch.int32)


class Passed(NamedTuple):
    """What a checkpoint became."""

    native: StateDict
    recovered: StateDict
    report: dict[str, Any]  #: the audit's JSON
    compress: Ran
    audit: Ran


def through(state_dict: StateDict, folder: Path, grad_bound: str = "1") -> Passed:
    """A checkpoint through all three commands, each of which must succeed."""
    native, compressed, recovered, json = (folder / name for name in ("n.pt", "c.gmc", "r.pt", "a.json"))
    torch.save(state_dict, native)
    said = run_well("compress", native, compressed, "--tolerance", "0.01", "--grad-bound", grad_bound, "-v")
    run_well("recover", compressed, recovered)
    audited = run_well("audit", compressed, "--native", native, "--json", json, "-v")
    report = read_json(json)
    assert report["coordinates"] == numel(state_dict)
    assert report["safe"] + report["escapes"] + sum(report["kept"].values()) == report["coordinates"]
    assert (report["violations"], report["undecided"], report["holds"]) == (0, 0, True)
    return Passed(load_state_dict(native), load_state_dict(recovered), report, said, audited)


@pytest.mark.parametrize("grad_bound", ["1", "inf", "1e-3", "0x1p-149"])
def test_wild_values_escape_bit_for_bit_with_their_reason(tmp_path: Path, grad_bound: str) -> None:
    native, recovered, report, said, _ = through(changed(trained(), planted), tmp_path, grad_bound)

    for name in ("exp_avg", "exp_avg_sq"):
        kept = [entry["state"][0][name].view(-1)[: len(PLANTED)] for entry in (native, recovered)]
        assert same_bits(*kept), f"{name}: {kept[0].view(torch.int32).tolist()} {kept[1].view(torch.int32).tolist()}"
    reasons = [reason for _, _, reason in PLANTED]
    expected = {reason: reasons.count(reason) for reason in reasons}
    expected["not within tolerance"] = report["escapes"] - len(PLANTED)
    assert report["escape_reasons"] == expected
    for reason, count in expected.items():
        assert f"\n            {count} {reason}\n" in said.out, reason
    zero = len(PLANTED)
    assert recovered["state"][0]["exp_avg"].view(-1)[zero].item() == 0.0
    assert recovered["state"][0]["exp_avg_sq"].view(-1)[zero].item() == 0.0


def test_an_infinite_bound_is_said_in_words(tmp_path: Path) -> None:
    *_, report, said, audited = through(only(trained(), 3), tmp_path, "inf")

    assert "every finite gradient below the op model's overflow limit" in said.line("claim")
    assert "every finite gradient below the op model's overflow limit" in audited.line("claim")
    assert "gradients above" not in report["not_claimed"]


def test_a_finite_bound_is_said_in_words(tmp_path: Path) -> None:
    *_, report, said, _ = through(only(trained(), 3), tmp_path, "0.125")

    assert "every gradient |g| <= 0.125" in said.line("claim")
    assert "gradients above 0.125" in report["not_claimed"]


def test_amsgrad_is_guarded_by_the_closed_form_and_said(tmp_path: Path) -> None:
    native, recovered, report, said, audited = through(trained(amsgrad=True), tmp_path)

    assert report["kept"] == {}
    assert 0 < report["escapes"] < numel(native)
    assert same_bits(*([s["max_exp_avg_sq"] for s in saved["state"].values()] for saved in (recovered, native)))
    assert said.status == audited.status == 0, said.err + audited.err
    assert audited.line("verdict").startswith("HOLDS"), audited.out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_moments_of_another_dtype_are_kept_whole_and_said(tmp_path: Path, dtype: torch.dtype) -> None:
    def convert(state_dict: StateDict) -> None:
        for name in ("exp_avg", "exp_avg_sq"):
            state_dict["state"][1][name] = state_dict["state"][1][name].to(dtype)

    native, recovered, report, said, _ = through(changed(only(trained(), 1, 3), convert), tmp_path)

    assert same_bits(recovered["state"][1], native["state"][1])
    assert report["kept"] == {f"{str(dtype).removeprefix('torch.')} moments": native["state"][1]["exp_avg"].numel()}
    assert "kept whole: " in said.out


def test_scalars_and_empty_tensors_come_back(tmp_path: Path) -> None:
    parameters = [nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.empty(0, 4)), nn.Parameter(torch.ones(1, 1, 3))]
    optimizer = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.3)
    optimizer.step()

    native, recovered, report, _, _ = through(optimizer.state_dict(), tmp_path)

    for key in range(3):
        for name in ("exp_avg", "exp_avg_sq"):
            moments = [state_dict["state"][key][name] for state_dict in (native, recovered)]
            assert moments[0].shape == moments[1].shape, (key, name)
            assert moments[0].stride() == moments[1].stride(), (key, name)
    assert report["coordinates"] == 4
    assert report["kept"] == {"no coordinates": 0}
    optimizer.load_state_dict(recovered)
    optimizer.step()


def test_an_optimizer_that_never_stepped_has_nothing_to_guard(tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(nn.Linear(3, 2).parameters())

    native, recovered, report, said, audited = through(optimizer.state_dict(), tmp_path)

    assert same_bits(recovered, native)
    assert (report["coordinates"], report["bit_rate"], report["max_deviation"]) == (0, 0.0, 0.0)
    assert report["max_deviation_at"] is None
    assert said.line("stored").startswith("0 coordinates of 0 tensors")
    assert audited.line("checked").startswith("0 coordinates")
    optimizer.load_state_dict(recovered)


def test_parameters_without_state_stay_without(tmp_path: Path) -> None:
    used, unused = nn.Parameter(torch.ones(20)), nn.Parameter(torch.ones(30))
    optimizer = torch.optim.AdamW([used, unused])
    used.grad = torch.linspace(-1, 1, 20)
    optimizer.step()

    native, recovered, report, _, _ = through(optimizer.state_dict(), tmp_path)

    assert list(recovered["state"]) == list(native["state"]) == [0]
    assert recovered["param_groups"] == native["param_groups"]
    assert report["coordinates"] == 20


def test_layouts_of_memory_come_back(tmp_path: Path) -> None:
    convolution = nn.Conv2d(3, 5, 3)
    convolution.weight.data = convolution.weight.data.to(memory_format=torch.channels_last)
    transposed = nn.Parameter(torch.randn(7, 4).t())
    optimizer = torch.optim.AdamW([*convolution.parameters(), transposed])
    transposed.grad = torch.linspace(-1, 1, 28).view(4, 7)
    convolution(torch.linspace(-1, 1, 192).view(1, 3, 8, 8)).square().mean().backward()
    optimizer.step()

    native, recovered, report, _, _ = through(optimizer.state_dict(), tmp_path)

    for key, entry in native["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            assert recovered["state"][key][name].stride() == entry[name].stride(), (key, name)
            assert not recovered["state"][key][name].isnan().any(), (key, name)
    assert native["state"][0]["exp_avg"].stride() == (27, 1, 9, 3)
    assert native["state"][2]["exp_avg"].stride() == (1, 4)
    assert report["kept"] == {}


def test_a_layout_that_the_fused_kernel_copies_is_kept_whole(tmp_path: Path) -> None:
    transposed = nn.Parameter(torch.randn(7, 4).t())
    optimizer = torch.optim.AdamW([transposed], fused=True)
    transposed.grad = torch.linspace(-1, 1, 28).view(4, 7)
    optimizer.step()

    native, recovered, report, _, _ = through(optimizer.state_dict(), tmp_path)

    assert same_bits(recovered, native)
    assert report["kept"] == {"not contiguous with fused=True": 28}


@pytest.mark.parametrize(
    ("optimizer", "path"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"fused": True}),
    ],
    ids=["Adam single", "AdamW foreach", "Adam fused", "AdamW fused"],
)
def test_every_path_of_torch_is_recorded_and_holds(
    tmp_path: Path, optimizer: type[torch.optim.Adam], path: dict[str, bool]
) -> None:
    through(trained(optimizer, **path), tmp_path)

    name = next(iter(path), "single")
    assert {t.implementation.rpartition("/")[2] for t in read(tmp_path / "c.gmc").tensors} == {name}


def test_a_capturable_checkpoint_needs_the_name_of_its_op_model(tmp_path: Path) -> None:
    state_dict = only(trained(), 3)
    for group in state_dict["param_groups"]:
        group["capturable"] = True
    torch.save(state_dict, tmp_path / "n.pt")
    name = "torch-2.14-cuda/capturable"

    run_well("compress", tmp_path / "n.pt", tmp_path / "c.gmc", *CLAIM, "--op-model", name)

    audited = run_well("audit", tmp_path / "c.gmc", "--native", tmp_path / "n.pt")
    assert audited.line("claim").endswith(name)
    with pytest.raises(AssertionError, match="capturable"):
        updates(state_dict, 0.0)  # torch steps it on CUDA only


@pytest.mark.parametrize(
    "options",
    [
        {"betas": (0.0, 0.9)},
        {"betas": (0.9, 0.0)},
        {"betas": (0.3, 0.9)},
        {"betas": (0.5, 0.999)},
        {"eps": 1e-3},
        {"maximize": True},
        {"lr": torch.tensor(3e-4)},
        {"lr": 1e5},
    ],
    ids=[
        "beta1 of zero",
        "beta2 of zero",
        "small beta1",
        "beta1 of a half",
        "large eps",
        "maximize",
        "tensor lr",
        "large lr",
    ],
)
def test_unusual_hyperparameters_hold(tmp_path: Path, options: dict[str, Any]) -> None:
    state_dict = only(trained(), 1, 3)
    for group in state_dict["param_groups"]:
        group.update(options)

    through(state_dict, tmp_path)


@pytest.mark.parametrize(
    "step", [torch.tensor(0.0), torch.tensor(12), 12, 12.0, torch.tensor(2.0**24), torch.tensor([7.0])]
)
def test_steps_of_any_kind_are_understood(tmp_path: Path, step: Tensor | float) -> None:
    native, recovered, *_ = through(changed(only(trained(), 3), lambda s: s["state"][3].update(step=step)), tmp_path)

    assert same_bits(recovered["state"][3]["step"], native["state"][3]["step"])
    assert read(tmp_path / "c.gmc").tensors[0].next_step == float(step) + (float(step) < 2**24)


def test_the_smallest_values_that_a_file_holds_are_exact(tmp_path: Path) -> None:
    def subnormal(state_dict: StateDict) -> None:
        for name in ("exp_avg", "exp_avg_sq"):
            flat = state_dict["state"][2][name]
            flat.copy_(torch.tensor([from_bits(bits) for bits in range(1, flat.numel() + 1)]))

    native, recovered, report, *_ = through(changed(only(trained(), 2), subnormal), tmp_path)

    tensor = next(t for t in read(tmp_path / "c.gmc").tensors if t.key == 2)
    for name in ("exp_avg", "exp_avg_sq"):
        where = tensor.escaped
        assert same_bits(recovered["state"][2][name][where], native["state"][2][name][where])
    assert report["holds"]
