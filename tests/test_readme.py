"""The README's commands, code and figures are those of the program: each is run, or looked up where it is defined."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch
from tests.docs.documents import blocks_of, masked, shown_in
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import gmc, run_well

import train_language_model as example
from guarded_moments.oracle import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

#: What a row of the table of commands leaves open.
PLACEHOLDERS = {
    "CHECKPOINT": "optimizer.pt",
    "OUT.gmc": "optimizer.gmc",
    "IN.gmc": "optimizer.gmc",
    "OUT.pt": "optimizer.recovered.pt",
    "FILE": "audit.json",
    "TAU": "0.01",
    "G": "1.0",
}


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [block.text for block in blocks_of(README) if block.language == language]


def table_of_commands() -> dict[str, str]:
    """The rows of the table under "Commands": what is typed, and what it does."""
    section = README.split("\n## Commands\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE))


def consoles() -> list[tuple[str, list[str]]]:
    """The commands of the console blocks, each with the output that is shown for it."""
    return [(shown.command, shown.output) for block in blocks("console") for shown in shown_in(block)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a small checkpoint of the name that the README uses."""
    torch.save(trained(), tmp_path / "optimizer.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_something_to_check() -> None:
    assert len(blocks("console")) >= 1
    assert len(blocks("sh")) >= 1
    assert len(blocks("python")) >= 1
    assert len(table_of_commands()) >= 6
    assert [command.split()[1] for command, _ in consoles()] == ["compress", "audit", "recover"]


@pytest.mark.usefixtures("folder")
def test_the_commands_of_the_first_screen_run_and_print_what_is_shown() -> None:
    for command, shown in consoles():
        program, *arguments = shlex.split(command)
        assert program == "gmc"

        ran = run_well(*arguments)

        printed = [masked(line) for line in ran.out.splitlines()]
        for line in shown:
            assert masked(line) in printed, f"{command}\nshown:   {masked(line)}\nprinted: {printed}"


def test_the_figures_of_the_first_screen_are_of_the_example_and_agree() -> None:
    text = "\n".join(blocks("console"))
    settings = example.Settings(steps=400, seed=0, fused=False)
    coordinates = sum(parameter.numel() for parameter in example.make_model(settings).parameters())
    tensors = sum(1 for _ in example.make_model(settings).parameters())

    assert f"{coordinates:,} coordinates of {tensors} tensors" in text
    checked = re.search(r"checked +([\d,]+) coordinates: ([\d,]+) safe for every gradient, ([\d,]+) escaped", text)
    escaped = re.search(r"exact +([\d,]+) coordinates escaped \(([\d.]+) %\)", text)
    assert checked is not None
    assert escaped is not None
    whole, safe, exact = (int(count.replace(",", "")) for count in checked.groups())
    assert whole == safe + exact == coordinates
    assert int(escaped[1].replace(",", "")) == exact
    assert f"{100 * exact / whole:.2f}" == escaped[2]
    assert len(set(re.findall(r"([\d.]+) bits per coordinate", text))) == 1


def test_the_table_names_every_command_and_no_other() -> None:
    programs = [row.split()[:2] for row in table_of_commands()]

    assert [name for program, name in programs if program == "gmc"].count("compress") == 1
    assert {name for program, name in programs if program == "gmc"} == set(cli.COMMANDS)
    assert [row for row in programs if row[0] != "gmc"] == [["pytest", "--oracle"]]


@pytest.mark.parametrize("row", table_of_commands(), ids=lambda row: " ".join(row.split()[:2]))
def test_a_row_of_the_table_names_what_the_command_takes(row: str, pytestconfig: pytest.Config) -> None:
    program, *arguments = shlex.split(re.sub(r"[\[\]]", "", row))
    options = {
        argument for argument in arguments if argument.startswith("-") and not re.match(r"-?[\d.]", argument[1:])
    }
    if program == "pytest":
        assert all(pytestconfig.getoption(option, default="absent") != "absent" for option in options)
        return
    command = cli.gmc.get_command(click.Context(cli.gmc), arguments[0])
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    assert options <= known, f"{row}: {options - known}"
    does = table_of_commands()[row]
    mentioned = set(re.findall(r"`(-[\w-]+)`", does))
    assert mentioned <= known, f"{row}: {does}: {mentioned - known}"


@pytest.mark.usefixtures("folder")
def test_the_rows_about_files_run() -> None:
    ran = []
    for row in table_of_commands():
        program, *words = shlex.split(re.sub(r"[\[\]]", "", row))
        if program == "gmc" and words[0] in {"compress", "recover", "audit", "explain"}:
            run_well(*(PLACEHOLDERS.get(word, word) for word in words))
            ran.append(words[0])
    assert ran == ["compress", "recover", "audit", "explain"]
    assert {path.name for path in Path().iterdir()} == {
        "optimizer.pt",
        "optimizer.gmc",
        "optimizer.recovered.pt",
        "audit.json",
    }


def test_what_is_said_of_exit_statuses_and_outputs_is_so(folder: Path) -> None:
    assert "Exit status 2 means that the input is wrong, in one line; no output is written then" in README
    refused = gmc("compress", "missing.pt", "out.gmc", "--tolerance", "0.01", "--grad-bound", "1")

    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert [path.name for path in folder.iterdir()] == ["optimizer.pt"]


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_code_runs(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def targets() -> list[str]:
    """The targets of `make` that the documents name in code."""
    code = " ".join(re.findall(r"```.*?```|`[^`]+`", README + CONTRIBUTING, re.DOTALL))
    return sorted(set(re.findall(r"\bmake ([a-z]+)\b", code)))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", targets())
def test_every_target_that_is_named_exists(target: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    make = shutil.which("make")
    assert make is not None

    done = subprocess.run([make, "-n", target], cwd=ROOT, env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_targets_that_matter_are_named() -> None:
    assert {"audit", "test"} <= set(targets())
    assert [line.split()[:2] for line in "\n".join(blocks("sh")).splitlines()] == [["make", "audit"], ["make", "test"]]


def test_every_link_and_folder_is_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README + CONTRIBUTING)
    folders = re.findall(r"^(\w+)/ ", README.split("\n## Where things are\n")[1], re.MULTILINE)

    assert links
    assert folders
    assert [name for name in [*links, *folders] if not (ROOT / name).exists()] == []
