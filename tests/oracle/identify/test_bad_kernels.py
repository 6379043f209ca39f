"""Kernels that cannot be identified at all: one line that says why, and status 2; and what `gmc identify` prints."""

import re
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.running import gmc, read_json
from tests.oracle.identify import planted
from tests.oracle.identify.simulated import QUICK
from torch import Tensor

from guarded_moments.oracle.cli import identify as command
from guarded_moments.oracle.identify import (
    Feature,
    Flags,
    FunctionSubject,
    KernelError,
    Plan,
    Setting,
    identify,
    load_subject,
)
from guarded_moments.reference.errors import PlatformError

HERE = "tests.oracle.identify.planted"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("planted", "'planted' names no kernel: expected module:callable, such as torch.optim:AdamW"),
        (":sound", "names no kernel"),
        (f"{HERE}:", "names no kernel"),
        ("no_such_module:f", "no_such_module:f: cannot import no_such_module: ModuleNotFoundError"),
        (f"{HERE}:absent", f"{HERE}:absent: there is no absent in it"),
        (f"{HERE}:not_callable", "is a int, expected a function or a torch.optim.Optimizer class"),
        (f"{HERE}:raising", "raised RuntimeError on 535 elements at step 1, .*: no such kernel image$"),
        (f"{HERE}:returning_one", r"returned Tensor, expected \(p, m, v\)"),
        (f"{HERE}:returning_two", r"returned 2 values, expected \(p, m, v\)"),
        (f"{HERE}:returning_doubles", r"returned v as float64 of shape \(535,\), expected float32"),
        (f"{HERE}:returning_numbers", "returned float for v, expected a torch.Tensor"),
        (f"{HERE}:reshaping", r"returned m as float32 of shape \(1, 535\), expected float32 of shape \(535,\)"),
        (f"{HERE}:shortening", r"returned p as float32 of shape \(534,\)"),
        (f"{HERE}:taking_too_few", "raised TypeError .* takes 4 positional arguments but 8 were given"),
        (f"{HERE}:random_bits", "gives other bits when called again with the same inputs"),
        ("torch.optim:SGD", "takes no betas and no eps, as Adam with these flags does"),
        ("torch.optim:Adamax", "raised KeyError on 535 elements"),
    ],
)
def test_a_bad_kernel_is_refused_in_one_line(target: str, says: str) -> None:
    with pytest.raises(KernelError, match=says) as raised:
        identify(load_subject(target))
    assert "\n" not in str(raised.value)


def test_flags_need_an_optimizer_that_takes_them() -> None:
    with pytest.raises(KernelError, match=r"is no torch\.optim\.Optimizer class, so --fused does not apply"):
        load_subject(f"{HERE}:sound", Flags(fused=True))
    with pytest.raises(KernelError, match="takes no fused"):
        load_subject("torch.optim:RAdam", Flags(fused=True))


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(KernelError, match="device 'no-such-device' cannot be used"):
        load_subject(f"{HERE}:sound", device="no-such-device")


def test_a_kernel_gets_copies_of_its_own() -> None:
    """It overwrites all that it is given, and the next call sees nothing of it."""
    subject = FunctionSubject(planted.sound, "a kernel")
    setting = QUICK.settings[0]
    inputs = torch.randn(5, 21)
    before = inputs.clone()
    first = subject.step(setting, inputs)
    assert torch.equal(inputs, before)
    assert torch.equal(first.nan_to_num(), subject.step(setting, inputs).nan_to_num())


def test_options_that_a_kernel_offers_are_always_passed() -> None:
    """Its own defaults, such as AdamW's weight decay, would otherwise act in steps that are to have none."""
    seen: list[dict[str, object]] = []

    def kernel(
        p: Tensor,
        g: Tensor,
        m: Tensor,
        v: Tensor,
        step: float,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.01,
        v_max: Tensor | None = None,
        *,
        maximize: bool = True,
    ) -> tuple[Tensor, ...]:
        seen.append({"weight_decay": weight_decay, "maximize": maximize, "v_max": v_max is not None})
        return (p, m, v) if v_max is None else (p, m, v, v_max)

    subject = FunctionSubject(kernel, "a kernel")
    assert subject.features == set(Feature)
    for setting in (Setting(), Setting(weight_decay=0.1), Setting(amsgrad=True, maximize=True)):
        subject.step(setting, torch.ones(5, 3))
    assert seen == [
        {"weight_decay": 0.0, "maximize": False, "v_max": False},
        {"weight_decay": 0.1, "maximize": False, "v_max": False},
        {"weight_decay": 0.0, "maximize": True, "v_max": True},
    ]


def test_a_plan_with_nothing_to_look_at_is_refused() -> None:
    with pytest.raises(ValueError, match="a setting without weight decay"):
        Plan(settings=(QUICK.settings[3],))
    with pytest.raises(ValueError, match="a size of at least 1"):
        Plan(sizes=(0, 8))


def test_flush_to_zero_is_refused() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        with pytest.raises(PlatformError, match="flush-to-zero"):
            identify(load_subject(f"{HERE}:sound"), QUICK)
    finally:
        torch.set_flush_denormal(False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, with a plan that takes no time."""
    monkeypatch.setattr(command, "Plan", lambda **fields: Plan(**(vars(QUICK) | {"seed": fields.get("seed", 1)})))


@pytest.mark.parametrize(
    ("flags", "names"),
    [((), {"single", "foreach"}), (("--foreach",), {"single", "foreach"}), (("--fused",), {"fused"})],
    ids=["single", "foreach", "fused"],
)
def test_the_command_names_each_path_and_writes_json(
    quick: None, flags: tuple[str, ...], names: set[str], tmp_path: Path
) -> None:
    """The single and the foreach path round alike on a CPU, so that both names are right for either."""
    ran = gmc("identify", "torch.optim:AdamW", *flags, "--json", tmp_path / "found.json")
    assert (ran.status, ran.err) == (0, "")
    assert set(re.findall(r"^IDENTIFIED  \S+/(\w+), constants HOST  \[measured\]", ran.out, re.MULTILINE)) == names
    found = read_json(tmp_path / "found.json")
    assert found["exact"] is True
    assert {entry["implementation"].rpartition("/")[2] for entry in found["named"]} == names


def test_the_command_does_not_write_over_what_it_found(quick: None, tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text("{}")
    ran = gmc("identify", "torch.optim:AdamW", "--fused", "--json", tmp_path / "found.json")
    assert ran.status == 2
    assert "exists already" in ran.err
    assert (tmp_path / "found.json").read_text() == "{}"


def test_the_command_says_what_differs_and_exits_with_1(quick: None, tmp_path: Path) -> None:
    ran = gmc("identify", f"{HERE}:with_a_reciprocal_root", "--json", tmp_path / "found.json")
    assert (ran.status, ran.err) == (1, "")
    assert "p' given m', v' follows no op model" in ran.out
    assert "the kernel has " in ran.out
    found = read_json(tmp_path / "found.json")
    assert found["exact"] is False
    assert [entry["quantity"] for entry in found["unlike"]] == ["parameter"]


@pytest.mark.parametrize("target", [f"{HERE}:raising", f"{HERE}:absent", "planted", f"{HERE}:returning_two"])
def test_the_command_refuses_a_bad_kernel_with_2(quick: None, target: str) -> None:
    ran = gmc("identify", target)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("gmc: ")
    assert len(ran.err.splitlines()) == 1
