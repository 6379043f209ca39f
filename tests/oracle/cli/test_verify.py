"""The attestation beside a file, and whether file, native checkpoint and attestation belong together."""

import base64
import json
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, changed, rewritten, with_codes
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import CLAIM, Ran, contents, gmc, read_json, run_well
from tests.reference.checkpoint.states import DATA

from guarded_moments.oracle.cli import audit_attestation
from guarded_moments.oracle.platform import Certificate, this_machine
from guarded_moments.oracle.report import attestation
from guarded_moments.reference import write

AUDIT = ("audit", "optimizer.gmc", "--native", "optimizer.pt", "--attestation", "a.json")
VERIFY = ("verify", "optimizer.gmc", "--native", "optimizer.pt", "--attestation", "a.json")


@pytest.fixture
def attested(here: Path) -> dict[str, Any]:
    """The statement about the two files that lie here."""
    run_well(*AUDIT)
    return read_json(here / "a.json")


def test_a_statement_is_one_of_in_toto(attested: dict[str, Any], here: Path) -> None:
    assert attested["_type"] == "https://in-toto.io/Statement/v1"
    assert attested["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    for subject, name in zip(attested["subject"], ("optimizer.gmc", "optimizer.pt"), strict=True):
        content = (here / name).read_bytes()
        assert (subject["name"], subject["digest"]) == (name, {"sha256": sha256(content).hexdigest()})
    predicate = attested["predicate"]
    assert predicate["result"] in {"PASSED", "WARNED"}
    for resource in predicate["configuration"]:
        assert {"uri", "digest", "content"} & resource.keys(), "a ResourceDescriptor needs one of these"
    tests = predicate["passedTests"] + predicate["warnedTests"] + predicate["failedTests"]
    assert sorted(tests) == sorted([*attestation.REQUIRED, attestation.ROOT])


def test_it_says_what_the_audit_found_and_with_what(attested: dict[str, Any], job: Job) -> None:
    predicate = attested["predicate"]
    own, report = predicate["guarded_moments"], job.report
    for name in ("coordinates", "safe", "violations", "undecided", "escapes", "needless_escapes", "max_deviation"):
        assert own[name] == report[name], name
    (claim,) = own["claims"]
    tensor = job.state.tensors[0]
    assert [claim["sentence"]] == report["claims"]
    assert (claim["tolerance"], claim["gradient_bound"], claim["op_model"]) == (0.01, 1.0, tensor.implementation)
    assert (claim["tensors"], claim["coordinates"], claim["next_step"]) == (4, report["coordinates"], 13.0)
    claims, proofs, *tools = predicate["configuration"]
    assert json.loads(base64.b64decode(claims["content"])) == own["claims"]
    assert re.fullmatch("[0-9a-f]{64}", proofs["digest"]["sha256"])
    uris = {tool["name"]: tool["uri"] for tool in tools}
    assert uris["guarded-moments"] == f"pkg:pypi/guarded-moments@{version('guarded-moments')}"
    assert uris["torch"] == f"pkg:pypi/torch@{version('torch').replace('+', '%2B')}"
    assert own["machine"]["cpu"] == this_machine().cpu


def test_two_audits_attest_the_same_bytes(attested: dict[str, Any], here: Path) -> None:
    before = (here / "a.json").read_bytes()
    run_well(*AUDIT, "--force")
    assert (here / "a.json").read_bytes() == before


def test_without_a_certificate_of_the_root_there_is_a_warning(
    here: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Certified(Certificate):
        @property
        def certified(self) -> bool:
            return True

    monkeypatch.setattr(audit_attestation, "certificate_of", lambda _: None)
    run_well(*AUDIT)
    warned = read_json(here / "a.json")["predicate"]
    monkeypatch.setattr(audit_attestation, "certificate_of", lambda _: Certified(this_machine()))
    run_well(*AUDIT, "--force")
    passed = read_json(here / "a.json")["predicate"]

    assert (warned["result"], warned["warnedTests"]) == ("WARNED", [attestation.ROOT])
    assert (passed["result"], passed["warnedTests"]) == ("PASSED", [])
    assert attestation.ROOT in passed["passedTests"]


@pytest.mark.usefixtures("attested")
def test_what_belongs_together_is_verified(job: Job) -> None:
    ran = run_well(*VERIFY)

    assert ran.line("verdict") == "BELONG TOGETHER, and the claim was found to hold"
    assert ran.line("claim") == job.report["claims"][0]
    assert ran.line("files") == "2 here, 2 attested"
    assert "problem" not in ran.out


def test_files_are_told_by_their_bytes_and_not_by_their_names(attested: dict[str, Any], here: Path) -> None:
    Path("optimizer.gmc").rename("renamed.gmc")
    run_well("verify", "renamed.gmc", "--native", "optimizer.pt", "--attestation", "a.json")


def refused(*arguments: str) -> list[str]:
    """The problems that `verify` lists, with status 1."""
    ran = gmc(*arguments)
    assert (ran.status, ran.err) == (1, ""), ran
    return [line.removeprefix("problem").strip() for line in ran.out.splitlines() if line.startswith("problem")]


@pytest.mark.usefixtures("attested")
def test_another_native_checkpoint_is_told(job: Job) -> None:
    def other(state_dict: dict[str, Any]) -> None:
        state_dict["state"][0]["exp_avg"][0, 0] += 1e-3

    torch.save(changed(job.state_dict, other), "optimizer.pt")

    problems = refused(*VERIFY)

    assert [line for line in problems if line.startswith("optimizer.pt: this native file is not one")]
    assert [line for line in problems if "attestation is about this native file too, which is not there" in line]
    assert [line for line in problems if "not the file's own native checkpoint: state[0] (0.weight)" in line]


@pytest.mark.usefixtures("attested")
def test_the_same_values_in_other_bytes_are_another_file(job: Job) -> None:
    torch.save(job.state_dict, "optimizer.pt", _use_new_zipfile_serialization=False)

    problems = refused(*VERIFY)

    assert len(problems) == 2
    assert all("native file" in line for line in problems)


@pytest.mark.usefixtures("attested")
def test_another_compressed_file_is_told() -> None:
    run_well("compress", "optimizer.pt", "optimizer.gmc", "--tolerance", "0.02", "--grad-bound", "1", "--force")

    problems = refused(*VERIFY)

    assert [line for line in problems if line.startswith("optimizer.gmc: this compressed file is not one")]
    assert [
        line for line in problems if line.startswith("the file claims what was not attested: first update within 0.02")
    ]
    assert [
        line
        for line in problems
        if line.startswith("attested is what the file does not claim: first update within 0.01")
    ]


@pytest.mark.usefixtures("attested")
def test_a_claim_that_was_widened_afterwards_is_told() -> None:
    rewritten(Path("optimizer.gmc"), b'tolerance\\":\\"0.01', b'tolerance\\":\\"0.02')

    problems = refused(*VERIFY)

    assert [line for line in problems if "0.02 lr" in line and "not attested" in line]


@pytest.mark.usefixtures("here")
def test_a_file_whose_claim_is_false_gets_an_attestation_that_says_so(job: Job) -> None:
    wrong = with_codes(job.state, 0, [accepted(job.state, 0)[0]], lambda codes: codes ^ 0x80)
    write(wrong, Path("optimizer.gmc"), overwrite=True)

    audited = gmc(*AUDIT)
    ran = gmc(*VERIFY)

    assert (audited.status, ran.status) == (1, 1)
    predicate = read_json(Path("a.json"))["predicate"]
    assert (predicate["result"], predicate["failedTests"]) == ("FAILED", [attestation.EXACT, attestation.CLAIM])
    assert ran.line("verdict") == "BELONG TOGETHER, but the attestation does not say that the claim holds"
    assert "the verdict of the audit was DOES NOT HOLD" in ran.out


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:  # noqa: ANN401 - JSON
        *way, last = path
        for key in way:
            data = data[key]
        data[last] = value

    return change


@pytest.mark.usefixtures("attested")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("predicate", "result", value="FAILED"), "its result is FAILED"),
        (_set("predicate", "guarded_moments", "verdict", value="UNDECIDED"), "verdict of the audit was UNDECIDED"),
        (_set("predicate", "passedTests", value=[]), f"neither passed nor failed: {attestation.CLAIM}"),
        (_set("predicate", "failedTests", value=["another"]), "failed: another"),
        (_set("subject", 0, "digest", "sha256", value="0" * 64), "is not one that the attestation is about"),
        (_set("subject", 1, "annotations", "role", value="compressed"), "optimizer.pt: this native file is not one"),
        (_set("predicate", "guarded_moments", "claims", value=[]), "the file claims what was not attested"),
        (_set("predicate", "guarded_moments", "claims", 0, "tolerance", value=1.0), "not attested"),
    ],
)
def test_a_changed_statement_does_not_fit(change: Callable[[dict[str, Any]], None], says: str) -> None:
    data = json.loads(Path("a.json").read_text(encoding="utf-8"))
    change(data)
    Path("a.json").write_text(json.dumps(data), encoding="utf-8")

    assert [line for line in refused(*VERIFY) if says in line]


@pytest.mark.usefixtures("attested")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "a.json: is no JSON"),
        (b"\xff\xfe", "a.json: is no JSON"),
        (b"[]", "a.json: is no in-toto statement"),
        (b'{"_type": "https://in-toto.io/Statement/v0.1"}', "a.json: is no in-toto statement"),
        (b'{"_type": "https://in-toto.io/Statement/v1", "predicateType": "x"}', "a.json: is about something else"),
        (_set("predicate", value={}), "a.json: is no attestation that gmc audit --attestation wrote: KeyError"),
        (_set("predicate", "guarded_moments", "version", value=2), "a.json: is of version 2"),
        (_set("subject", value=7), "a.json: is no attestation that gmc audit --attestation wrote: TypeError"),
    ],
)
def test_what_is_no_attestation_is_refused(content: bytes | Callable[[dict[str, Any]], None], says: str) -> None:
    path = Path("a.json")
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        data = json.loads(path.read_text(encoding="utf-8"))
        content(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    ran = gmc(*VERIFY)

    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (VERIFY, "a.json: No such file"),
        (("verify", "no.gmc", "--native", "optimizer.pt", "--attestation", "optimizer.pt"), "optimizer.pt: is no JSON"),
        ((*AUDIT, "--lr", "1e-3"), "--lr audits another"),
        ((*AUDIT[:-1], "optimizer.pt", "--force"), "optimizer.pt: is read as input"),
        ((*AUDIT[:-1], "optimizer.gmc"), "optimizer.gmc: is read as input"),
        ((*AUDIT, "--json", "a.json"), "a.json: is read as input"),
    ],
)
def test_a_wrong_request_is_refused(arguments: tuple[str, ...], says: str, here: Path) -> None:
    before = contents(here)

    ran = gmc(*arguments)

    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert contents(here) == before


@pytest.mark.usefixtures("here")
def test_a_file_that_changes_during_the_audit_is_not_attested(monkeypatch: pytest.MonkeyPatch) -> None:
    write_statement = audit_attestation.Attesting.write

    def touched(self: audit_attestation.Attesting, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - as it takes
        with Path("optimizer.pt").open("ab") as file:
            file.write(b"\0")
        write_statement(self, *arguments, **named)

    monkeypatch.setattr(audit_attestation.Attesting, "write", touched)

    ran = gmc(*AUDIT)

    assert ran.status == 2
    assert "optimizer.pt: changed while it was audited" in ran.err
    assert not Path("a.json").exists()


def test_a_folder_is_attested_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DATA / "dcp_fsdp2", "native")
    run_well("compress", "native", "c", *CLAIM)
    run_well("audit", "c", "--native", "native", "--attestation", "a.json")
    verify: Callable[[], Ran] = lambda: gmc("verify", "c", "--native", "native", "--attestation", "a.json")  # noqa: E731 - twice

    assert verify().status == 0
    names = [subject["name"] for subject in read_json(Path("a.json"))["subject"]]
    assert names == [*sorted(contents(tmp_path / "c")), *sorted(contents(tmp_path / "native"))]
    Path("native/more").write_bytes(b"more")
    ran = verify()
    assert ran.status == 1
    assert "more: this native file is not one that the attestation is about" in ran.out
