"""The examples of resuming run: in plain PyTorch always, in the trainers where they are installed (`make trainers`)."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from guarded_moments.reference.checkpoint import read
from guarded_moments.reference.checkpoint.file_format import from_bytes
from guarded_moments.reference.clipping import bound_of_clipped_norm

EXAMPLES = Path(__file__).parents[2] / "examples"
HELD = re.compile(
    r"^the guarantee held for the first update \(largest gradient ([\d.e-]+) at .+, bound 1\)$", re.MULTILINE
)


def run(example: str, folder: Path) -> str:
    """What an example prints; a child, since trainers change settings of their process."""
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), "--folder", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def state_within(found: dict[str, Any]) -> Any:  # noqa: ANN401 - a GuardedState
    """What a compressed state_dict holds; it has nothing else that could be loaded in its place."""
    assert (found["state"], found["param_groups"]) == ({}, [])
    return from_bytes(bytes(found["guarded_moments"].numpy().data))


def check(state: Any, said: str) -> None:  # noqa: ANN401 - as above
    """It is guarded, with the bound of clipping, and the guarantee was seen to hold."""
    assert state.gradient_bound.value == bound_of_clipped_norm(1.0)
    assert state.coordinates == sum(tensor.numel for tensor in state.tensors) == 16 * 32 + 32 + 32 * 4 + 4
    assert {tensor.next_step for tensor in state.tensors} == {4}
    largest = HELD.search(said)
    assert largest is not None, said
    assert 0 < float(largest[1]) <= state.gradient_bound.value


def test_plain_pytorch(tmp_path: Path) -> None:
    said = run("resume_plain", tmp_path)

    check(read(tmp_path / "optimizer.gmc"), said)
    moved, apart = re.findall(r"[\d.]+(?= lr)", said.splitlines()[1])
    assert float(apart) <= 0.01 < float(moved)


def test_lightning(tmp_path: Path) -> None:
    require("lightning")
    said = run("resume_lightning", tmp_path)

    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    check(state_within(checkpoint["optimizer_states"][0]), said)
    assert said.splitlines()[-1] == "step 5"


def test_trainer_of_hugging_face(tmp_path: Path) -> None:
    require("transformers")
    require("accelerate")
    said = run("resume_trainer", tmp_path)

    check(state_within(torch.load(tmp_path / "checkpoint-3" / "optimizer.pt", weights_only=True)), said)
    assert said.splitlines()[-1] == "step 5"


def require(package: str) -> None:
    """Skip where a trainer is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make trainers")
