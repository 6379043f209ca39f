"""The command as a process: its status, its streams, and what it imports."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, levels_up, same_bits, with_codes
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import CLAIM, contents, gmc, run_well

from guarded_moments.oracle.cli import COMMANDS
from guarded_moments.reference import load_state_dict, write

SCRIPT = Path(sys.executable).with_name("gmc")

#: Runs command lines in a process that was prepared, and says the status of each on standard error.
PREPARED = """
import json, sys
import torch
from guarded_moments.oracle.cli import audit, compress, explain, main, recover
{preparation}
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["gmc", *arguments]
    try:
        main()
    except SystemExit as stop:
        print(f"status {{stop.code}}", file=sys.stderr)
"""


def prepared(preparation: str, *commands: list[str], cwd: Path) -> list[str]:
    """The lines on standard error of a process that runs commands after a preparation."""
    program = PREPARED.format(preparation=preparation)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(commands)],
        cwd=cwd,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_the_version_is_the_distributions() -> None:
    assert run_well("--version").out == f"gmc, version {metadata.version('guarded-moments')}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_help_names_every_command(flag: str) -> None:
    ran = run_well(flag)

    for name, does in COMMANDS.items():
        assert f"\n  {name} " in ran.out
        assert does.split()[0] in ran.out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    ran = run_well(name, "--help")

    assert ran.out.startswith(f"Usage: gmc {name} ")
    assert "Options:" in ran.out


def test_no_command_at_all_shows_the_help() -> None:
    ran = gmc()

    assert ran.status == 2
    assert "Commands:" in ran.err


def test_help_and_version_do_not_wait_for_torch() -> None:
    program = (
        "import sys\n"
        "from guarded_moments.oracle.cli import main\n"
        "for option in ('--help', '--version'):\n"
        "    sys.argv = ['gmc', option]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as stop:\n"
        "        assert stop.code == 0\n"
        "print([name for name in ('torch', 'z3', 'numpy') if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stderr == "[]\n"


def test_the_installed_command_says_by_its_status_that_a_claim_is_false(job: Job, here: Path) -> None:
    write(with_codes(job.state, 0, accepted(job.state, 0)[:1], levels_up(60)), here / "wrong.gmc")

    done = subprocess.run(
        [SCRIPT, "audit", "wrong.gmc", "--native", "optimizer.pt"],
        cwd=here,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (1, "")
    assert "DOES NOT HOLD    1 violations, 0 undecided" in done.stdout


def test_flush_to_zero_is_refused_and_recovery_does_not_need_subnormals(here: Path) -> None:
    state_dict = load_state_dict(here / "optimizer.pt")
    tiny = torch.arange(1, 18, dtype=torch.int32).view(torch.float32)
    state_dict["state"][2] |= {"exp_avg": -tiny, "exp_avg_sq": tiny.clone()}
    torch.save(state_dict, here / "tiny.pt")
    run_well("compress", here / "tiny.pt", here / "tiny.gmc", *CLAIM)
    run_well("recover", here / "tiny.gmc", here / "expected.pt")
    before = contents(here)

    lines = prepared(
        "assert torch.set_flush_denormal(True)",
        ["compress", "optimizer.pt", "out.gmc", *CLAIM],
        ["audit", "optimizer.gmc", "--native", "optimizer.pt", "--json", "out.json"],
        ["explain", "--m", "1e-4", "--v", "1e-7", *CLAIM],
        ["recover", "tiny.gmc", "recovered.pt"],
        cwd=here,
    )

    assert lines[1::2] == ["status 2", "status 2", "status 2", "status 0"][: len(lines[1::2])]
    assert lines[-1] == "status 0"
    for line, name in zip(lines[:6:2], ("optimizer.pt: ", "optimizer.pt: ", ""), strict=True):
        assert line.startswith(f"gmc: {name}flush-to-zero is switched on")
    after = contents(here)
    after.pop("recovered.pt")
    assert after == before
    assert same_bits(load_state_dict(here / "recovered.pt"), load_state_dict(here / "expected.pt"))


def test_a_full_disk_leaves_nothing_behind(here: Path) -> None:
    (here / "old").write_bytes(b"precious")
    before = contents(here)

    lines = prepared(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))",
        ["compress", "optimizer.pt", "out", *CLAIM],
        ["compress", "optimizer.pt", "old", *CLAIM, "--force"],
        ["recover", "optimizer.gmc", "out"],
        ["recover", "optimizer.gmc", "old", "--force"],
        ["audit", "optimizer.gmc", "--native", "optimizer.pt", "--json", "out"],
        cwd=here,
    )

    expected = [f"gmc: {name}: cannot be written: File too large" for name in ("out", "old", "out", "old", "out")]
    assert lines == [line for refusal in expected for line in (refusal, "status 2")]
    assert contents(here) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_result_that_cannot_be_printed_is_no_verdict(here: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [SCRIPT, "audit", "optimizer.gmc", "--native", "optimizer.pt"],
            cwd=here,
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )

    assert done.returncode == 2
    assert done.stderr == "gmc: standard output: No space left on device\n"
