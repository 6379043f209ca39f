"""The catalogue as a document, and what every check is given."""

import json
import re
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.running import run_well

from guarded_moments.oracle.conformance import (
    REQUIREMENTS,
    Adapted,
    Level,
    NonConformance,
    ReferenceBackend,
    Requirement,
    Trial,
    Undecided,
    requirement,
    requirements,
)
from guarded_moments.oracle.conformance.document import CHAPTERS, as_markdown, in_order
from guarded_moments.reference.errors import PlatformError


def test_identifiers_are_unique_and_numbered_by_chapter() -> None:
    identifiers = [required.identifier for required in REQUIREMENTS]
    assert len(set(identifiers)) == len(identifiers)
    assert list(dict.fromkeys(required.chapter for required in REQUIREMENTS)) == list(CHAPTERS)
    for chapter in CHAPTERS:
        numbers = [int(i.partition("-")[2]) for i in identifiers if i.startswith(f"{chapter}-")]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("required", REQUIREMENTS, ids=lambda required: required.identifier)
def test_each_is_written_out(required: Requirement) -> None:
    for sentence in (required.text, required.why):
        assert re.fullmatch(r"[A-Z].*\.", sentence), sentence
    assert required.check.__doc__ is not None
    assert required.check.__doc__.startswith(f"{required.identifier}.")
    assert requirement(required.identifier) is required


def test_the_guarantee_is_of_the_sound_level() -> None:
    sound = {required.identifier for required in REQUIREMENTS if required.level is Level.SOUND}
    assert sound >= {"OPS-1", "GRD-1", "GRD-2", "EXA-1", "REC-1"}
    assert {identifier[:3] for identifier in sound} == {"OPS", "GRD", "EXA", "REC", "FMT", "ERR"}
    assert not {identifier for identifier in sound if identifier[:3] in {"DEC", "ENC"}}


def test_the_page_of_the_documentation_is_the_catalogue() -> None:
    page = Path(__file__).parents[3] / "docs" / "requirements.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), "gmc requirements --markdown > docs/requirements.md"


def test_the_command_prints_every_requirement() -> None:
    printed = run_well("requirements").out
    for required in REQUIREMENTS:
        assert f"{required.identifier}  {required.level.value}\n" in printed
    listed = json.loads(run_well("requirements", "--json").out)
    assert [entry["identifier"] for entry in listed] == [required.identifier for required in in_order()]
    assert run_well("requirements", "--markdown").out == as_markdown()


def test_an_unknown_identifier_is_an_error() -> None:
    with pytest.raises(KeyError):
        requirement("GRD-99")


def drawn(seed: int, purpose: str) -> list[float]:
    values: list[float] = torch.rand(4, generator=Trial(Adapted(ReferenceBackend()), seed).generator(purpose)).tolist()
    return values


def test_random_numbers_depend_on_seed_and_purpose_alone() -> None:
    assert drawn(1, "a") == drawn(1, "a")
    assert drawn(1, "a") != drawn(2, "a")
    assert drawn(1, "a") != drawn(1, "b")


def test_a_finding_is_its_lines() -> None:
    assert str(NonConformance("wrong", "here", "so")) == "wrong\nhere\nso"


def test_flushed_subnormals_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def flushes() -> None:
        raise PlatformError("flush-to-zero is on")

    monkeypatch.setattr(requirements, "require_subnormals", flushes)
    with pytest.raises(Undecided, match="flush-to-zero is on"):
        requirement("DEC-2").judge(Trial(Adapted(ReferenceBackend()), 1))


def test_a_check_runs_on_one_thread_and_puts_them_back() -> None:
    seen = []
    before = torch.get_num_threads()
    Requirement("XXX-1", "T.", "W.", Level.SOUND, lambda _: seen.append(torch.get_num_threads()), ()).judge(
        Trial(Adapted(ReferenceBackend()), 1)
    )
    assert seen == [1]
    assert torch.get_num_threads() == before
