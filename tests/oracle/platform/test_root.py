"""The evidence on a root: this machine's, and that each fault alone prevents the certificate."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.oracle.platform.roots import INEXACT, SQUARE, faulty, moved

from guarded_moments.oracle.platform import (
    RootEvidence,
    certify_root,
    root,
)
from guarded_moments.oracle.platform.first_call import FirstCalls


def test_this_machines_root_is_close_and_monotone(compared: Counter[str]) -> None:
    found = certify_root(quick=True)
    assert found.problems == []
    assert not found.certified, "a quick look certifies nothing"
    compared["torch.sqrt with the correctly rounded root, to a unit"] += found.finite.inputs


@pytest.mark.timeout(1800)
def test_this_machines_root_is_certified_on_all_inputs(pytestconfig: pytest.Config, compared: Counter[str]) -> None:
    if pytestconfig.getoption("--oracle", default=None) is None:
        pytest.skip("all 2^31 inputs: with --oracle")
    found = certify_root()
    assert found.certified, found.problems
    compared["torch.sqrt with the correctly rounded root, to a unit"] += found.finite.inputs


def test_a_sound_root_is_certified_only_when_all_inputs_ran(evidence: RootEvidence) -> None:
    assert evidence.certified
    assert not replace(evidence, complete=False).certified


FAULTY: dict[str, Callable[[RootEvidence], RootEvidence]] = {
    "two units off": lambda e: faulty(e, farthest=2),
    "an error above what the guard allows": lambda e: faulty(e, relative=3.01),
    "a fall": lambda e: faulty(e, falls=1),
    "NumPy's root": lambda e: faulty(e, numpy_off=1),
    "the reference's root": lambda e: faulty(e, own_off=1),
    "a NaN answered": lambda e: replace(e, beyond=e.beyond._replace(nan=1)),
    "integers that disagree": lambda e: replace(e, exact_wrong=1),
    "an error that integers do not confirm": lambda e: replace(e, error_confirmed=False),
    "a root that depends on its place": lambda e: replace(e, placement=replace(e.placement, differing=1)),
    "a first call that settles nothing": lambda e: replace(e, first_calls=FirstCalls(9, 0, 0, 9, 1)),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_each_fault_alone_prevents_the_certificate(fault: str, evidence: RootEvidence) -> None:
    wrong = FAULTY[fault](evidence)
    assert len(wrong.problems) == 1
    assert not wrong.certified
    assert "NOT certified" in wrong.sentence()


def test_a_race_in_the_first_call_is_said_and_does_not_prevent_it(evidence: RootEvidence) -> None:
    """The claim is about a settled library, and importing the package settles it."""
    raced = replace(evidence, first_calls=FirstCalls(100, 1, 3878, 100, 0))
    assert raced.certified
    assert raced.sentence().endswith("the FIRST call was wrong in 1 of 100 new processes, if on two threads")
    assert "FIRST" not in evidence.sentence()


@pytest.mark.parametrize("at", [SQUARE, INEXACT])
def test_a_root_two_units_off_is_examined_and_refused(at: int) -> None:
    found = root.examine(moved(at, -2), [at], processes=0)
    assert found.problems == ["the largest distance from the correctly rounded root is more than one unit"]
    assert found.error_confirmed
