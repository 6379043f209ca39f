"""One report of a really trained checkpoint whose names are as hostile as names can be."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import CLAIM, Ran, read_json, run_well

from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.report import Evidence

#: Names from a checkpoint: markup, a script, a turned text, a line break, a half of a surrogate pair.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{ 7*7 }}&amp;\u202egnp.exe\nnext",
    "half \ud800 of a pair" + "long" * 60,
)


@dataclass(frozen=True)
class Reported:
    """Files of one report, and what the command said."""

    folder: Path
    ran: Ran

    @property
    def page(self) -> str:
        """The HTML."""
        return (self.folder / "report.html").read_text(encoding="utf-8")

    @property
    def facts(self) -> dict[str, Any]:
        """The JSON."""
        return read_json(self.folder / "report.json")


@pytest.fixture(scope="session")
def evidence() -> Evidence:
    """The proofs, replayed once."""
    return audit_report.evidence()


def report(folder: Path, *options: object) -> Ran:
    """Audit the files of a folder and write both reports."""
    arguments = ("audit", folder / "optimizer.gmc", "--native", folder / "optimizer.pt")
    return run_well(*arguments, "--report", folder / "report.html", "--report", folder / "report.json", *options)


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory, evidence: Evidence) -> Reported:
    folder = tmp_path_factory.mktemp("report")
    native = trained()
    names = iter(HOSTILE)
    for group in native["param_groups"]:
        group["param_names"] = [next(names) for _ in group["params"]]
    torch.save(native, folder / "optimizer.pt")
    run_well("compress", folder / "optimizer.pt", folder / "optimizer.gmc", *CLAIM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_report, "evidence", lambda: evidence)
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        ran = report(folder)
    return Reported(folder, ran)


def earlier_report(facts: dict[str, Any], path: Path) -> Path:
    """The same report as if the file had been another."""
    altered = json.loads(json.dumps(facts))
    altered["verdict"]["escapes"] += 1
    altered["trusted_base"]["versions"]["torch"] = "2.12.0<b>"
    altered["assurance"][0]["word"] = "unknown"
    altered["tensors"]["shown"][0]["where"] = "<i>gone</i>"
    path.write_text(json.dumps(altered), encoding="utf-8")
    return path
