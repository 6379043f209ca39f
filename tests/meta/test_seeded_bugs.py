"""The kit judged by the bugs it kills, and by the reference, which it must not flag."""

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
