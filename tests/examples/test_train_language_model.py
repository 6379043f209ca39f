"""The example trains for real, on fewer steps; what it writes is what the commands are then given."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import train_language_model as example

STEPS = 3
SETTINGS = example.Settings(steps=STEPS, seed=0, fused=False)


def run(folder: Path, *options: str, steps: int = STEPS) -> Result:
    arguments = ["--output-dir", str(folder), "--steps", str(steps), *options]
    return CliRunner(catch_exceptions=False).invoke(example.main, arguments)


def read_record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / example.RECORD).read_text(encoding="utf-8"))
    return record


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one finished run. Tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("trained") / "made" / "on the way"
    result = run(folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    for path in trained.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_writes_three_files_and_nothing_else(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {example.OPTIMIZER, example.MODEL, example.RECORD}


def test_the_state_loads_into_a_fresh_optimizer(trained: Path) -> None:
    state = torch.load(trained / example.OPTIMIZER, weights_only=True)
    model = example.make_model(SETTINGS)
    model.load_state_dict(torch.load(trained / example.MODEL, weights_only=True))
    optimizer = example.make_optimizer(model, SETTINGS)

    optimizer.load_state_dict(state)

    for parameter in model.parameters():
        moments = optimizer.state[parameter]
        assert moments["step"] == STEPS
        assert moments["exp_avg"].shape == moments["exp_avg_sq"].shape == parameter.shape
        assert moments["exp_avg"].dtype == moments["exp_avg_sq"].dtype == torch.float32
    names = [name for group in state["param_groups"] for name in group["param_names"]]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert [group["lr"] for group in state["param_groups"]] == [SETTINGS.learning_rate] * 2
    assert [group["weight_decay"] for group in state["param_groups"]] == [SETTINGS.weight_decay, 0.0]


def test_the_state_is_large_and_various(trained: Path) -> None:
    groups = torch.load(trained / example.OPTIMIZER, weights_only=True)
    names = [name for group in groups["param_groups"] for name in group["param_names"]]
    indices = [index for group in groups["param_groups"] for index in group["params"]]
    state = dict(zip(names, (groups["state"][index] for index in indices), strict=True))
    unused = sorted(set(range(example.BYTES)) - set(example.read_text(SETTINGS.text_limit)))

    assert sum(moments["exp_avg"].numel() for moments in state.values()) >= 500_000
    assert unused, "every byte occurs in the text"
    for moment in ("exp_avg", "exp_avg_sq"):
        assert not state["bytes.weight"][moment][unused].any()
        assert state["bytes.weight"][moment].any()
    query, key, _ = state["blocks.0.query_key_value.bias"]["exp_avg_sq"].chunk(3)
    assert key.max() < 1e-6 * query.max(), "a key's bias moves no probability: its gradient is rounding"


def test_the_record_says_what_was_done(trained: Path) -> None:
    record = read_record(trained)

    assert record["settings"]["steps"] == STEPS
    assert record["settings"]["seed"] == 0
    assert record["versions"]["torch"] == torch.__version__
    assert record["coordinates"] == sum(p.numel() for p in example.make_model(SETTINGS).parameters())
    assert len(record["losses"]) == STEPS
    assert record["losses"][-1] < record["losses"][0]
    assert record["sha256"][example.OPTIMIZER] == example.digest(trained / example.OPTIMIZER)


def test_a_second_run_keeps_the_first(trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.iterdir()}

    result = run(trained)

    assert result.exit_code == 0
    assert result.output.startswith("kept ")
    assert {path: path.stat().st_mtime_ns for path in trained.iterdir()} == before


def test_training_again_gives_the_same_bits(copied: Path) -> None:
    before = read_record(copied)

    result = run(copied, "--retrain")

    assert "kept" not in result.output
    after = read_record(copied)
    assert after["losses"] == before["losses"]
    assert after["sha256"] == before["sha256"]


@pytest.mark.parametrize("name", [example.OPTIMIZER, example.MODEL, example.RECORD])
@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_damaged_result_is_not_kept(copied: Path, name: str, damage: str) -> None:
    wanted = example.describe(SETTINGS, example.read_text(SETTINGS.text_limit))
    assert example.kept_record(copied, wanted) is not None
    whole = (copied / name).read_bytes()
    (copied / name).unlink()
    if damage == "cut":
        (copied / name).write_bytes(whole[:-10])

    assert example.kept_record(copied, wanted) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("settings", {"steps": STEPS + 1}),
        ("text_sha256", "of another text"),
        ("versions", {"torch": "another"}),
    ],
)
def test_a_result_of_another_run_is_not_kept(trained: Path, key: str, value: object) -> None:
    wanted = example.describe(SETTINGS, example.read_text(SETTINGS.text_limit))

    assert example.kept_record(trained, wanted | {key: value}) is None


def test_the_number_of_threads_does_not_matter(copied: Path) -> None:
    before = read_record(copied)
    threads = torch.get_num_threads()

    torch.set_num_threads(threads + 1)
    try:
        run(copied, "--retrain")
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)

    assert read_record(copied)["sha256"] == before["sha256"]


def test_other_settings_replace_the_result(copied: Path) -> None:
    before = read_record(copied)

    result = run(copied, "--fused", "--seed", "1", steps=1)

    assert result.exit_code == 0
    after = read_record(copied)
    assert after["settings"]["fused"] is True
    assert after["sha256"] != before["sha256"]
    state = torch.load(copied / example.OPTIMIZER, weights_only=True)
    assert [group["fused"] for group in state["param_groups"]] == [True, True]


def test_a_run_that_stops_leaves_the_earlier_result_whole(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in copied.iterdir()}

    def no_space(self: torch.nn.Module) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(example.LanguageModel, "state_dict", no_space)
    result = run(copied, "--retrain", steps=1)

    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == f"Error: {copied}: No space left on device"
    assert {path: path.read_bytes() for path in copied.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    result = run(file / "below")

    assert result.exit_code == 1
    assert result.output == f"Error: {file / 'below'}: Not a directory\n"


def test_a_python_without_sources_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))

    result = run(tmp_path / "out")

    assert result.exit_code == 1
    assert "without the sources of its standard library" in result.output
    assert not (tmp_path / "out").exists()
