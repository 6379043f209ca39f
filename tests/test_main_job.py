"""The main job in small: the commands of `make audit`, on the example trained for few steps instead of many."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tests.oracle.cli.running import Ran, read_json, run_well

import train_language_model as example
from guarded_moments.reference import load_state_dict, read

ROOT = Path(__file__).parents[1]
STEPS = 15
SETTINGS = example.Settings(steps=STEPS, seed=0, fused=False)

pytestmark = [
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
    pytest.mark.timeout(600),  # twenty seconds of one core, which others may be using
]


@dataclass(frozen=True)
class Done:
    """What the job left."""

    folder: Path
    commands: dict[str, Ran]


def recipe(folder: Path) -> list[list[str]]:
    """What `make audit` would run for the job itself, with another folder for its results."""
    make = shutil.which("make")
    assert make is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    listed = subprocess.run(
        [make, "-n", "audit", f"JOB={folder}"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    lines = [shlex.split(line) for line in listed.stdout.splitlines() if str(folder) in line]
    return [line for line in lines if line[0] != "echo"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("main") / "job"
    train, *commands = recipe(folder)
    assert [Path(word).name for word in train[:2]] == ["python", "train_language_model.py"]
    result = CliRunner(catch_exceptions=False).invoke(example.main, [*train[2:], "--steps", str(STEPS)])
    assert result.exit_code == 0, result.output
    assert [Path(program).name for program, *_ in commands] == ["gmc"] * len(commands)
    return Done(folder, {arguments[0]: run_well(*arguments) for _, *arguments in commands})


def test_the_job_is_train_compress_recover_audit(done: Done) -> None:
    assert list(done.commands) == ["compress", "recover", "audit"]


def test_no_coordinate_violates_the_claim(done: Done) -> None:
    report = read_json(done.folder / "audit.json")
    model = example.make_model(SETTINGS)

    assert report["coordinates"] == sum(parameter.numel() for parameter in model.parameters()) >= 500_000
    assert (report["violations"], report["undecided"], report["holds"]) == (0, 0, True)
    assert report["safe"] + report["escapes"] == report["coordinates"]
    assert report["kept"] == {}
    assert report["max_deviation"] <= report["max_deviation_upper"] <= 0.01
    assert done.commands["audit"].line("verdict").startswith("HOLDS on every coordinate")


def test_the_bit_rate_is_well_under_the_native_one(done: Done) -> None:
    size = (done.folder / "optimizer.gmc").stat().st_size
    report = read_json(done.folder / "audit.json")

    assert report["bit_rate"] == 8 * size / report["coordinates"]
    assert report["bit_rate"] < 40
    assert f"{report['bit_rate']:.2f} bits per coordinate" in done.commands["compress"].line("stored")


def test_every_result_that_is_listed_is_there(done: Done) -> None:
    named = set(re.findall(r"^\t@echo '  (\S+) ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert named == {"optimizer.pt", "optimizer.gmc", "optimizer.recovered.pt", "audit.json"}
    assert named <= {path.name for path in done.folder.iterdir()}
    assert {path.name for path in done.folder.iterdir()} == named | {example.MODEL, example.RECORD}


def test_the_recovered_state_resumes_within_the_tolerance(done: Done) -> None:
    """One step of the real optimizer from either state, with the gradient of a real batch, clipped as in training."""
    text = example.read_text(SETTINGS.text_limit)
    batch = torch.frombuffer(bytearray(text[:4160]), dtype=torch.uint8).long().view(64, 65)[:2]
    moved = []
    for name in ("optimizer.pt", "optimizer.recovered.pt"):
        model = example.make_model(SETTINGS)
        model.load_state_dict(torch.load(done.folder / example.MODEL, weights_only=True))
        optimizer = example.make_optimizer(model, SETTINGS)
        optimizer.load_state_dict(torch.load(done.folder / name, weights_only=True))
        logits = model(batch[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS.gradient_norm)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()  # so that the step leaves the update itself
        optimizer.step()
        moved.append([parameter.detach().clone() for parameter in model.parameters()])
        assert all(state["step"] == STEPS + 1 for state in optimizer.state.values())

    report = read_json(done.folder / "audit.json")
    deviations = [float((b.double() - a.double()).abs().max()) for a, b in zip(*moved, strict=True)]
    assert 0 < max(deviations) / SETTINGS.learning_rate <= report["max_deviation_upper"]


def test_only_the_guarded_moments_differ(done: Done) -> None:
    native, recovered = (load_state_dict(done.folder / name) for name in ("optimizer.pt", "optimizer.recovered.pt"))
    state = read(done.folder / "optimizer.gmc")

    assert recovered["param_groups"] == native["param_groups"]
    assert recovered["state"].keys() == native["state"].keys()
    for tensor in state.tensors:
        one, other = native["state"][tensor.key], recovered["state"][tensor.key]
        assert torch.equal(one["step"], other["step"])
        escaped = tensor.escaped.view(tensor.shape)
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(one[name][escaped], other[name][escaped])
            assert bool((other[name][one[name] == 0] == 0).all()), "zero stays zero"
