"""What all tests of the platform share: a state folder and one thread of their own, and evidence of a sound root."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.oracle.platform.roots import BLOCKS, correct

from guarded_moments.oracle.platform import (
    RootEvidence,
    root,
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Of every test here."""


@pytest.fixture(scope="module")
def evidence() -> RootEvidence:
    """Of a correct root on all inputs, as if they had run."""
    return replace(root.examine(correct, BLOCKS, processes=0), complete=True, scope=root.ALL)
