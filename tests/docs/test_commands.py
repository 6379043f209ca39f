"""Every command that a document shows is run by a test, and what is named in passing exists."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import torch
from tests.docs.documents import DOCS, ROOT, blocks_of, masked, shown_in
from tests.oracle.cli.checkpoints import only, trained
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.oracle import cli

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HERE = "tests/docs/test_commands.py"
#: The tests that run what a page shows, by page.  Generated pages are left out: the command that each carries made it.
RUN = {
    "CONTRIBUTING.md": "tests/test_readme.py",
    "README.md": "tests/test_readme.py",
    "attestation.md": "tests/docs/test_tutorials.py",
    "auditor.md": "tests/docs/test_tutorials.py",
    "backend-author.md": "tests/docs/test_tutorials.py",
    "checkpoint-owner.md": "tests/docs/test_tutorials.py",
    "choosing.md": "tests/test_documents.py",
    "codecs.md": HERE,
    "commands.md": HERE,
    "conformance.md": "tests/oracle/conformance/test_shown.py",
    "horizon.md": HERE,
    "index.md": HERE,
    "in-training.md": "tests/test_documents.py",
    "large-checkpoints.md": "tests/docs/test_tutorials.py",
}
#: What is not run as it stands, and which tests try instead what it does.
NOT_AS_IT_STANDS = {
    "make audit": "tests/test_main_job.py runs its commands, on a training of fewer steps",
    "make setup": "it made the environment that the tests run in",
    "make check": "it runs the tests",
    "make test": "it runs the tests",
    ".venv/bin/pre-commit install": "it changes the repository's own hooks",
    "eval": "tests/oracle/cli/test_conventions.py asks for completions",
    "_GMC_COMPLETE=fish_source": "as the others",
    "cc": "tests/oracle/conformance/test_other_languages.py builds it, with warnings on",
    "gmc pipe": "tests/oracle/conformance/test_other_languages.py",
    "gmc vectors": "tests/oracle/conformance/test_other_languages.py",
    "pytest --oracle": "an hour or more",
    "pytest --oracle=kernels/submission.py:backend": "tests/oracle/test_pytest_plugin.py takes a file like it",
    "pytest --oracle=reference": "as above, beside tests of one's own",
    "gmc prove": "tests/oracle/cli/test_prove.py",
    "python examples/resume_plain.py": "tests/examples/test_resuming.py",
}
_PROGRAMS = re.compile(r"(gmc|pytest|python|make|cc|eval|_GMC_COMPLETE\S*|\.venv/bin/\S+) ")
_INLINE = re.compile(r"`(gmc [^`]+)`")


class Command(NamedTuple):
    """A command of a page."""

    page: Path
    text: str
    output: list[str]  #: what is shown of it


def commands_of(page: Path) -> list[Command]:
    """What stands in blocks of commands, fenced or indented."""
    text = page.read_text(encoding="utf-8")
    found: list[Command] = []
    lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    for language, inside in blocks_of(text):
        if language == "console":
            found += [Command(page, shown.command, shown.output) for shown in shown_in(inside)]
        elif language in {"", "sh"}:
            lines += inside.splitlines()
    return [*found, *(Command(page, line.split("  #")[0].strip(), []) for line in lines if _PROGRAMS.match(line))]


def generated(page: Path) -> bool:
    return re.search(r"[Gg]enerated\b.*, never edited", page.read_text(encoding="utf-8")[:700]) is not None


COMMANDS = [command for page in PAGES if not generated(page) for command in commands_of(page)]


def test_every_page_with_commands_has_its_tests() -> None:
    assert {command.page.name for command in COMMANDS} == set(RUN)
    for page, tests in RUN.items():
        assert Path(page).stem in (ROOT / tests).read_text(encoding="utf-8"), page


def test_what_is_not_run_as_it_stands_is_shown_somewhere() -> None:
    for known in NOT_AS_IT_STANDS:
        assert any(command.text.startswith(known) for command in COMMANDS), known


@pytest.mark.parametrize("name", [page for page, tests in RUN.items() if tests == HERE])
def test_a_page_is_run_on_a_small_checkpoint(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "build" / "main-job"  # where the pages have the state of `make audit`
    job.mkdir(parents=True)
    for folder in (tmp_path, job):
        torch.save(only(trained(), 3), folder / "optimizer.pt")
    if name == "commands.md":  # which audits at once
        run_well("compress", "optimizer.pt", "optimizer.gmc", "--tolerance", "0.01", "--grad-bound", "1.0")
    ran = 0
    for command in COMMANDS:
        if command.page.name != name or any(command.text.startswith(known) for known in NOT_AS_IT_STANDS):
            continue
        typed, _, then = command.text.partition(" && ")
        program, *arguments = shlex.split(typed)
        assert program == "gmc", command
        status, out, err = gmc(*arguments)
        assert (status, err) == (0, ""), command
        assert then in {"", "echo holds"}
        printed = [masked(line) for line in [*out.splitlines(), then.removeprefix("echo ")]]
        assert [line for line in command.output if masked(line) not in printed] == []
        ran += 1
    assert ran >= 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_is_named_exists_with_its_options(page: Path) -> None:
    outside = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = [*_INLINE.findall(outside.replace("\n", " ")), *(command.text for command in commands_of(page))]
    for text in named:
        words = re.findall(r"[^\s\[\]]+", text)
        if words[0] != "gmc" or words[1] in {"--help", "COMMAND"}:
            continue
        command = cli.gmc.get_command(click.Context(cli.gmc), words[1])
        assert command is not None, text
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words[2])
            assert command is not None, text
        known = {"--help", *(name for parameter in command.params for name in parameter.opts)}
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, text
