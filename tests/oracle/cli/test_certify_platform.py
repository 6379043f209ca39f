"""`gmc certify-platform`: what it shows, what it keeps, and its exit status."""

from pathlib import Path

import pytest
from tests.oracle.cli.running import gmc
from tests.oracle.platform.roots import BLOCKS, moved

from guarded_moments.oracle.platform import (
    RootEvidence,
    certificate_path,
    platform_certificate,
    root,
    root_placement,
)
from guarded_moments.oracle.platform.root_sweep import (
    Root,
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Of every test here."""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, processes: int = 0) -> tuple[int, str, str]:
    """The command, with seven blocks for all of them and less of everything else."""
    monkeypatch.setattr(root, "complete_blocks", lambda: BLOCKS)
    monkeypatch.setattr(root, "quick_blocks", lambda: BLOCKS[:2])
    monkeypatch.setattr(root, "_NEW_PROCESSES", processes)
    monkeypatch.setattr(root_placement, "_LARGE", (4095, 65_543))
    monkeypatch.setattr(root_placement, "_THREADS", (1,))
    ran = gmc("certify-platform", *arguments)
    return ran.status, ran.out, ran.err


def test_the_command_certifies_keeps_and_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run(monkeypatch, processes=1)
    assert (status, err) == (0, "")
    assert "after one on one thread, wrong in 0 of 1\n" in out
    assert "verdict   CERTIFIED\n" in out
    kept = platform_certificate()
    assert kept is not None
    assert kept.certified
    assert kept.root is not None
    assert f"fingerprint {kept.root.finite.fingerprint}" in out
    assert f"kept      {certificate_path()}\n" in out
    assert kept.machine.cpu in out
    assert kept.arithmetic is None


def test_a_quick_look_is_never_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run(monkeypatch, "--quick")
    assert status == 1
    assert "verdict   NOT CERTIFIED: not every input ran\n" in out
    assert root.QUICK in out
    kept = platform_certificate()
    assert kept is not None
    assert not kept.certified


def test_a_quick_look_after_a_full_run_leaves_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch)
    assert run(monkeypatch, "--quick")[0] == 1
    kept = platform_certificate()
    assert kept is not None
    assert kept.certified


def test_the_command_compares_arithmetic_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gmpy2")
    status, out, _ = run(monkeypatch, "--arithmetic", "--count", "1000", "--seed", "4", "--processes", "1")
    assert status == 0
    assert "1,000 cases of add, sub, mul, div, fma" in out
    kept = platform_certificate()
    assert kept is not None
    assert kept.arithmetic is not None
    assert (kept.arithmetic.total, kept.arithmetic.seed, kept.arithmetic.differing) == (1000, 4, 0)


def test_the_command_says_so_when_a_root_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(_: Root, blocks: list[int], **options: object) -> RootEvidence:
        return true_examine(moved(0x3F800000, 5), blocks, processes=0)

    true_examine = root.examine
    monkeypatch.setattr(root, "examine", examine)
    status, out, _ = run(monkeypatch)
    assert status == 1
    assert "verdict   NOT CERTIFIED: the largest distance" in out
    assert "largest error: 5 ulp" in out
