"""The kit judged by the bugs it kills, and by the reference, which it must not flag."""

import re
from pathlib import Path

import pytest
from tests.meta.backends import KILLERS

from guarded_moments.oracle.conformance import (
    REQUIREMENTS,
    Adapted,
    NonConformance,
    ReferenceBackend,
    Requirement,
    Trial,
    requirement,
)

SEED = 1


@pytest.mark.parametrize("mutant", KILLERS, ids=lambda mutant: mutant.__name__)
def test_the_named_requirement_catches_it(mutant: type[ReferenceBackend]) -> None:
    with pytest.raises(NonConformance):
        requirement(KILLERS[mutant]).judge(Trial(Adapted(mutant()), SEED))


@pytest.mark.parametrize("required", REQUIREMENTS, ids=lambda required: required.identifier)
def test_the_reference_passes(required: Requirement) -> None:
    required.judge(Trial(Adapted(ReferenceBackend()), SEED))


def test_every_requirement_catches_something() -> None:
    assert set(KILLERS.values()) == {required.identifier for required in REQUIREMENTS}


def test_there_are_enough_of_them() -> None:
    assert len(KILLERS) >= 60


def test_the_page_of_the_documentation_has_each_caught_by_its_requirement() -> None:
    page = (Path(__file__).parents[2] / "docs" / "seeded-bugs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (\S+) \| [\d.]+ \|$", page, re.MULTILINE)
    said = {name: (what, by) for name, what, by in rows}
    assert said == {bug.__name__: (" ".join((bug.__doc__ or "").split()), by) for bug, by in KILLERS.items()}, (
        "python -m tests.meta.table > docs/seeded-bugs.md"
    )
    assert f"**{len(KILLERS)} of {len(KILLERS)} caught**" in page
