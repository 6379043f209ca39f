"""Every command and every piece of code of the tutorials runs, in order, and prints what is shown of it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.documents import DOCS, Shown, blocks_of, masked, shown_in
from tests.oracle.cli.running import gmc

from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.report import Evidence

TUTORIALS = sorted(DOCS.glob("tutorials/*.md"))
#: What is replaced so that it takes less time: the replay of the proofs is tested elsewhere.
ELSEWHERE = {("gmc", "prove"): "tests/oracle/cli/test_prove.py"}


def python(text: str, folder: Path) -> None:
    """Run code; what begins with the name of a file becomes that file, what starts processes gets one of its own."""
    named = re.match(r"# ([\w/]+\.py)\n", text)
    if named:
        (folder / named[1]).write_text(text, encoding="utf-8")
    elif "__main__" not in text:
        exec(compile(text, "block", "exec"), {"__name__": "block"})  # noqa: S102 - our own pages
    else:
        script = folder / "block.py"  # a file, since processes that are spawned import it again
        script.write_text(text, encoding="utf-8")
        command = [sys.executable, "-W", "error", str(script)]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        script.unlink()
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), text


def run(shown: Shown, folder: Path) -> None:
    """Run a command, and look for what is shown of its output."""
    program, *arguments = shlex.split(shown.command)
    if program == "gmc":
        status, out, err = gmc(*arguments)
    else:
        assert program == "pytest"
        command = [str(Path(sys.executable).parent / program), *arguments, "-p", "no:cacheprovider"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        status, out, err = done.returncode, done.stdout, done.stderr
    assert (status, err) == (shown.status, ""), f"{shown.command}\n{out}\n{err}"
    printed = [masked(line) for line in out.splitlines()]
    for line in shown.output:
        found = any(masked(line) in line_printed for line_printed in printed)
        assert found, f"{shown.command}\nshown:   {masked(line)}\nprinted: {printed}"


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """In place of the proofs' replay."""
    texts = ["not replayed here"]
    return Evidence([], [], texts, texts, texts, texts, "0" * 64)


def follow(path: Path, folder: Path) -> tuple[int, int]:
    """Run a page from its beginning to its end; how many commands and pieces of code there were."""
    commands = codes = 0
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "python":
            python(block.text, folder)
            codes += 1
        elif block.language == "console":
            for shown in shown_in(block.text):
                known = tuple(shlex.split(shown.command)[:2])
                if known in ELSEWHERE:
                    arguments = shlex.split(shown.command)[2:]
                    assert all(
                        f'"{argument}"' in (DOCS.parent / ELSEWHERE[known]).read_text() for argument in arguments
                    )
                else:
                    run(shown, folder)
                commands += 1
    return commands, codes


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_from_its_beginning_to_its_end(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: Evidence
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_report, "evidence", lambda: evidence)

    commands, codes = follow(path, tmp_path)

    assert commands >= 2
    assert codes >= 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["attestation", "large-checkpoints"])
def test_a_page_with_commands_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    if page == "large-checkpoints" and budget == 1:
        pytest.skip("starts four processes; with --oracle. Ordinary runs try the same in test_audit_workers.py")
    monkeypatch.chdir(tmp_path)
    auditor = blocks_of((DOCS / "tutorials" / "auditor.md").read_text(encoding="utf-8"))
    python(auditor[0].text, tmp_path)
    run(shown_in(auditor[1].text)[0], tmp_path)
    for ending in ("", ".gmc"):  # as the page calls them
        original = "optimizer.gmc" if ending else "optimizer.pt"
        (tmp_path / f"checkpoint{ending}").write_bytes((tmp_path / original).read_bytes())

    commands, _ = follow(DOCS / f"{page}.md", tmp_path)

    assert commands >= 1


def test_there_is_a_tutorial_for_each_user() -> None:
    assert [path.stem for path in TUTORIALS] == ["auditor", "backend-author", "checkpoint-owner"]
