"""The certificate: kept, found again, and not taken for another machine's or another root's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.oracle.platform.roots import faulty

from guarded_moments.oracle.platform import (
    Certificate,
    RootEvidence,
    certificate_path,
    keep,
    machine,
    platform_certificate,
    root,
    this_machine,
)
from guarded_moments.oracle.platform.arithmetic_evidence import ArithmeticEvidence

ARITHMETIC = ArithmeticEvidence({"add": 7}, {"NumpyBinary32": 0}, (), 1, "MPFR", "NumPy", 0.5, 1, "2026-01-01")


@pytest.fixture
def certificate(evidence: RootEvidence) -> Certificate:
    """Of this machine, as if its root were the correct one; its spot fingerprint is this machine's."""
    return Certificate(this_machine(), replace(evidence, spot=root.spot_fingerprint()), ARITHMETIC)


def test_a_certificate_survives_json(certificate: Certificate) -> None:
    for one in (certificate, replace(certificate, arithmetic=None), replace(certificate, root=None)):
        assert Certificate.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_a_certificate_is_found_where_it_was_kept(certificate: Certificate, tmp_path: Path) -> None:
    assert platform_certificate() is None
    path = keep(certificate)
    assert path == tmp_path / "state" / "guarded-moments" / f"platform-{this_machine().key}.json"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "no temporary file is left"
    assert platform_certificate() == certificate


@pytest.mark.parametrize("home", [None, "", "relative/folder"])
def test_without_a_state_folder_it_is_below_the_home(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in the variable is to be ignored, says the standard that defines it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME") if home is None else monkeypatch.setenv("XDG_STATE_HOME", home)
    assert certificate_path().parent == tmp_path / ".local" / "state" / "guarded-moments"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 2, "machine": {}}', "\xff"])
def test_a_damaged_certificate_is_none(text: str) -> None:
    path = certificate_path()
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    assert platform_certificate() is None


def test_a_certificate_of_another_machine_is_none(certificate: Certificate) -> None:
    path = keep(certificate)
    data = json.loads(path.read_text())
    data["machine"]["cpu"] = "another"
    path.write_text(json.dumps(data))
    assert platform_certificate() is None


def test_a_certificate_of_another_square_root_is_none(certificate: Certificate, evidence: RootEvidence) -> None:
    """The library may choose another kernel on what it takes for another machine."""
    keep(replace(certificate, root=replace(evidence, spot="0" * 64)))
    assert platform_certificate() is None


@pytest.mark.parametrize("change", ["cpu", "capability", "torch", "library", "settings"])
def test_the_key_depends_on_all_that_may_move_bits(change: str) -> None:
    here = this_machine()
    assert replace(here, **{change: "another"}).key != here.key


def test_settings_of_the_vector_library_are_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert this_machine().settings == "MKL_CBWR=COMPATIBLE"


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (
            "vendor_id: AuthenticAMD\nmodel: 17\nmodel name: AMD EPYC\ncpu family: 25\nstepping: 1\n\nmodel: 3",
            "AuthenticAMD, AMD EPYC, family 25, model 17, stepping 1",
        ),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41, part 0xd40"),
    ],
)
def test_a_cpu_is_named_by_all_that_linux_says_of_it(
    text: str, cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hypervisor gives CPUs that compute differently one model name."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "cpuinfo")
    assert this_machine().cpu == cpu


def test_a_cpu_has_a_name_even_where_nothing_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "none")
    assert this_machine().cpu


def test_a_quick_look_keeps_what_is_better(certificate: Certificate, evidence: RootEvidence) -> None:
    quick = Certificate(certificate.machine, replace(evidence, complete=False))
    assert quick.merged(None) == quick
    assert quick.merged(certificate) == certificate
    assert quick.merged(replace(certificate, root=None)) == replace(certificate, root=quick.root)
    assert certificate.merged(quick) == certificate


def test_a_finding_against_the_root_replaces_the_certificate(certificate: Certificate, evidence: RootEvidence) -> None:
    for complete in (False, True):
        bad = Certificate(certificate.machine, faulty(replace(evidence, complete=complete), falls=1))
        assert bad.merged(certificate) == replace(bad, arithmetic=certificate.arithmetic)


def test_a_mismatch_of_the_arithmetic_prevents_the_certificate(certificate: Certificate) -> None:
    assert certificate.certified
    assert not replace(certificate, arithmetic=replace(ARITHMETIC, mismatches={"NumpyBinary32": 1})).certified


def test_the_arithmetic_alone_certifies_no_root() -> None:
    assert not Certificate(this_machine(), arithmetic=ARITHMETIC).certified
