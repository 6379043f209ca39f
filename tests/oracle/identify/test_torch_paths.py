"""torch's own paths, named without a hint, on the machine that runs the tests."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.oracle.identify.simulated import QUICK

from guarded_moments.oracle.identify import COMPILED_PLAN, Flags, Identification, Plan, Quantity, identify, load_subject
from guarded_moments.reference.implementations import capability_of_this_machine

#: More sizes, none a multiple of the other's vectors.
SIZES = replace(QUICK, sizes=(1, 21, 28))
UNFUSED, FUSED = {"single", "foreach"}, {"fused"}
PATHS = {"single": (Flags(), UNFUSED), "foreach": (Flags(foreach=True), UNFUSED), "fused": (Flags(fused=True), FUSED)}


def names(found: Identification) -> set[str]:
    """The implementations that a kernel was found to be; each must be of this machine."""
    prefix = f"torch-2.13-cpu-{capability_of_this_machine()}/"
    assert all(known.name.startswith(prefix) for known, _ in found.named)
    return {known.name.removeprefix(prefix) for known, _ in found.named}


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
@pytest.mark.parametrize("path", PATHS)
def test_each_path_is_named(path: str, optimizer: str, compared: Counter[str]) -> None:
    flags, expected = PATHS[path]
    found = identify(load_subject(f"torch.optim:{optimizer}", flags), SIZES)
    assert found.exact
    assert names(found) == expected
    assert [str(rule) for rule in found.rules] == ["HOST"]
    assert not found.skipped
    assert found.assembly is not None
    (decay,) = {candidate.decay.value for candidate in found.assembly.parts[0][Quantity.PARAMETER_DECAY]}
    assert decay == ("decoupled" if optimizer == "AdamW" else "none")
    compared["identified kernels with op models"] += found.compared


def test_the_ordinary_plan_names_the_fused_path_on_tensors_split_over_threads(
    threads: None, compared: Counter[str]
) -> None:
    torch.set_num_threads(2)
    found = identify(load_subject("torch.optim:AdamW", Flags(fused=True)))
    assert names(found) == FUSED
    assert found.compared > 1_000_000
    assert torch.get_num_threads() == 2
    compared["identified kernels with op models"] += found.compared


def test_the_tails_of_each_threads_chunk_are_found(threads: None) -> None:
    torch.set_num_threads(2)
    plan = replace(QUICK, large=65_566)  # two chunks of 32,783, which is 15 more than a multiple of 16
    found = identify(load_subject("torch.optim:Adam"), plan)
    assert names(found) == UNFUSED


@pytest.mark.parametrize(
    ("flags", "expected", "rule"),
    [
        (Flags(tensor_lr=True), UNFUSED, "HOST, lr as a float32 tensor"),
        (Flags(tensor_betas=True), UNFUSED, "HOST, betas as a float32 tensor"),
        (Flags(fused=True, tensor_lr=True), FUSED, "HOST, lr as a double, rounded to binary32 first"),
    ],
)
def test_hyperparameters_given_as_tensors_are_told_from_numbers(flags: Flags, expected: set[str], rule: str) -> None:
    plan = replace(QUICK, settings=(*Plan().settings[:2], *QUICK.settings))
    found = identify(load_subject("torch.optim:AdamW", flags), plan)
    assert names(found) == expected
    assert str(found.rules[0]) == rule
    assert "HOST" not in map(str, found.rules)


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
def test_the_compiled_step_is_named(budget: int, compared: Counter[str], *, foreach: bool) -> None:
    plan = COMPILED_PLAN if budget > 1 else replace(COMPILED_PLAN, settings=COMPILED_PLAN.settings[:2], sizes=(535,))
    found = identify(load_subject("torch.optim:AdamW", Flags(compiled=True, foreach=foreach)), plan)
    assert names(found) == {"compiled-foreach" if foreach else "compiled"}
    assert str(found.rules[0]) == ("COMPILED_FOREACH" if foreach else "COMPILED")
    compared["identified kernels with op models"] += found.compared


_THREE_PATHS = """
import torch
from tests.oracle.identify.simulated import QUICK
from guarded_moments.oracle.identify import Flags, identify, load_subject
torch.set_num_threads(1)
for flags in (Flags(), Flags(foreach=True), Flags(fused=True)):
    found = identify(load_subject("torch.optim:AdamW", flags), QUICK)
    print(torch.backends.cpu.get_cpu_capability(), *sorted(known.name for known, _ in found.named))
"""


def test_each_path_of_the_default_build_is_named() -> None:
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    command = [sys.executable, "-c", _THREE_PATHS]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    prefix = "torch-2.13-cpu-default/"
    unfused = f"DEFAULT {prefix}foreach {prefix}single"
    assert done.stdout.splitlines() == [unfused, unfused, f"DEFAULT {prefix}fused"]
