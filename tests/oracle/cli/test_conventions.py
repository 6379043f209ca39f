"""What the commands have in common, as `docs/commands.md` says it: statuses, streams, JSON, quiet, completion."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import torch
from tests.oracle.cli.checkpoints import numel, trained
from tests.oracle.cli.running import CLAIM, gmc, run_well

from guarded_moments.oracle import cli
from guarded_moments.oracle.cli import COMMANDS, QUIET, SILENT
from guarded_moments.oracle.cli.common import watched

DOCUMENT = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
SCRIPT = Path(sys.executable).with_name("gmc")


@pytest.fixture
def optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Coordinates of `optimizer.pt` in the working directory."""
    monkeypatch.chdir(tmp_path)
    native = trained()
    torch.save(native, "optimizer.pt")
    return numel(native)


def command(name: str) -> click.Command:
    found = cli.gmc.get_command(click.Context(cli.gmc), name)
    assert found is not None
    return found


def taking(option: str) -> set[str]:
    """The commands with an option."""
    return {name for name in COMMANDS if any(option in parameter.opts for parameter in command(name).params)}


def row(option: str) -> set[str]:
    """The commands that the document names beside it."""
    (line,) = re.findall(rf"^\| `{option}.* With (.*) \|$", DOCUMENT, re.MULTILINE)
    return set(re.findall(r"`([\w-]+)`", line))


def test_the_document_says_which_command_takes_which_option() -> None:
    assert row("-q`, `--quiet") == taking("--quiet") == SILENT
    assert row("--json FILE") == taking("--json") - {"ops", "requirements"}
    assert row("-v`, `--verbose") == taking("--verbose")


def test_quiet_commands_print_nothing_and_do_their_work(optimizer: int) -> None:
    for arguments in (
        ("compress", "optimizer.pt", "optimizer.gmc", *CLAIM, "-v"),
        ("audit", "optimizer.gmc", "--native", "optimizer.pt", "--attestation", "optimizer.intoto.json"),
        ("verify", "optimizer.gmc", "--native", "optimizer.pt", "--attestation", "optimizer.intoto.json"),
        ("recover", "optimizer.gmc", "recovered.pt"),
        ("suggest", "optimizer.pt", "--tolerance", "0.01", "--grad-bound", "1"),
    ):
        assert gmc(*arguments, "--quiet") == (0, "", ""), arguments
    assert {path.name for path in Path().iterdir()} >= {"optimizer.gmc", "optimizer.intoto.json", "recovered.pt"}
    assert "HOLDS" in run_well("audit", "optimizer.gmc", "--native", "optimizer.pt").out, "quiet is no more"


def test_quiet_commands_say_errors(optimizer: int) -> None:
    said = gmc("compress", "missing.pt", "optimizer.gmc", *CLAIM, "-q")

    assert (said.status, said.out, said.err) == (2, "", "gmc: missing.pt: there is no such file\n")


def test_json_is_all_that_is_printed_where_it_goes_to_standard_output(optimizer: int) -> None:
    compressed = json.loads(run_well("compress", "optimizer.pt", "optimizer.gmc", *CLAIM, "-v", "--json", "-").out)
    audited = json.loads(run_well("audit", "optimizer.gmc", "--native", "optimizer.pt", "--json", "-", "-q").out)
    recovered = json.loads(run_well("recover", "optimizer.gmc", "recovered.pt", "--json", "-").out)

    assert compressed["coordinates"] == audited["coordinates"] == recovered["coordinates"] == optimizer
    assert compressed["claims"] == audited["claims"]
    assert compressed["escapes"] == audited["escapes"] == sum(compressed["escape_reasons"].values())
    assert compressed["bit_rate"] == pytest.approx(audited["bit_rate"])
    assert compressed["bytes"] == Path("optimizer.gmc").stat().st_size
    assert recovered == {"coordinates": optimizer, "tensors": 4, "files": 1, "output": "recovered.pt"}


def test_json_goes_to_a_file_beside_what_is_printed(optimizer: int) -> None:
    said = run_well("compress", "optimizer.pt", "optimizer.gmc", *CLAIM, "--json", "said.json")
    found = json.loads(Path("said.json").read_text(encoding="utf-8"))

    assert f"{found['bit_rate']:.2f} bits per coordinate" in said.line("stored")
    again = gmc("compress", "optimizer.pt", "other.gmc", *CLAIM, "--json", "said.json")
    assert (again.status, Path("other.gmc").exists()) == (2, False)
    assert "said.json: exists already; nothing was written" in again.err


def test_the_console_block_runs(optimizer: int) -> None:
    (line, printed) = re.findall(r"^\$ (.*)\n(.*)$", DOCUMENT, re.MULTILINE)[0]
    run_well("compress", "optimizer.pt", "optimizer.gmc", *CLAIM)
    command, then = line.split(" && ")

    assert gmc(*command.split()[1:]) == (0, "", "")
    assert then == f"echo {printed}"


def completed(words: str) -> list[str]:
    """What bash is offered for the last of some words, and how long that took is looked at."""
    split = words.split(" ")
    environment = os.environ | {
        "_GMC_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(split) - 1),
    }
    done = subprocess.run([SCRIPT], env=environment, check=True, capture_output=True, text=True)
    return [line.split(",", 1)[1] for line in done.stdout.splitlines()]


def test_commands_and_options_are_completed() -> None:
    assert completed("gmc co") == ["compress"]
    assert completed("gmc ") == list(COMMANDS)
    assert {"--grad-bound", "--grid", "--grids-from", "--guard"} == set(completed("gmc compress --g"))


def test_completing_a_command_imports_none() -> None:
    """Else every key would take seconds: importing torch is most of that."""
    program = "from guarded_moments.oracle.cli import main\ntry:\n main()\nfinally:\n print('torch' in sys.modules)"
    environment = os.environ | {"_GMC_COMPLETE": "bash_complete", "COMP_WORDS": "gmc ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['gmc']\n{program}"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert len(done.stdout.splitlines()) == len(COMMANDS) + 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_for_shells_print_what_defines_completion(shell: str) -> None:
    assert f"_GMC_COMPLETE={shell}_source gmc" in DOCUMENT
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not installed, of which click asks its version")
    environment = os.environ | {"_GMC_COMPLETE": f"{shell}_source"}
    done = subprocess.run([SCRIPT], env=environment, check=True, capture_output=True, text=True)

    assert f"_GMC_COMPLETE={shell}_complete" in done.stdout
    assert done.stderr == ""


def test_progress_is_shown_on_a_terminal(optimizer: int) -> None:
    """A pseudo-terminal stands for one.  That nothing is shown elsewhere, `run_well` sees each time."""
    ours, theirs = os.openpty()
    arguments = [str(SCRIPT), "compress", "optimizer.pt", "optimizer.gmc", *CLAIM]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = drained(ours)
        assert process.wait() == 0
    os.close(ours)
    assert b"compressing" in shown


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_is_not_shown_where_quiet_is_asked_for(monkeypatch: pytest.MonkeyPatch, *, quiet: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with click.Context(cli.gmc) as context:
        context.meta[QUIET] = quiet
        assert watched() is not quiet


def drained(descriptor: int) -> bytes:
    """All that a program writes to a pseudo-terminal before it ends."""
    content, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        try:
            block = os.read(descriptor, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        content += block
    return content
