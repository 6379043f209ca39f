"""`gmc audit --report`: what the page says beyond the audit, gathered from the proofs, the machine and the files."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import click

from guarded_moments.oracle.audit import Audit
from guarded_moments.oracle.cli.audited_files import described, files_of
from guarded_moments.oracle.cli.common import said_of, working
from guarded_moments.oracle.platform import Certificate, platform_certificate
from guarded_moments.oracle.report import Evidence, Run, difference, page, report_schema, require_report
from guarded_moments.proofs import ProofFileError, all_lemmas, check_certificates
from guarded_moments.proofs.check import LEMMA, CheckedClaim, proof_text
from guarded_moments.proofs.trusted_base import (
    ASSUMED,
    EXHAUSTED,
    NOT_COVERED,
    NOT_DERIVED,
    installed_versions,
    paragraphs,
)
from guarded_moments.reference.checkpoint.writing import check_output, write_bytes
from guarded_moments.reference.errors import CheckpointError, UnsupportedError

KINDS = (".html", ".json")
#: Set by those who want two runs to give the same bytes (reproducible-builds.org): the time is then left out.
REPRODUCIBLE = "SOURCE_DATE_EPOCH"


def print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the schema of the JSON and end."""
    if asked and not context.resilient_parsing:
        click.echo(json.dumps(report_schema(), indent=1))
        context.exit()


def require(reports: Sequence[Path], *, overwrite: bool, inputs: Sequence[Path]) -> None:
    """Refuse, before any work, a report that could not be written.

    Raises:
        UnsupportedError: a name says no kind of report.
        CheckpointError: it would destroy something.
    """
    for place, path in enumerate(reports):
        if path.suffix not in KINDS:
            raise UnsupportedError(f"{path}: a report needs a name that ends in {' or '.join(KINDS)}")
        if path.resolve() in [other.resolve() for other in reports[:place]]:
            raise CheckpointError(f"{path}: is asked for twice")
        check_output(path, overwrite=overwrite, inputs=inputs)


def read_earlier(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """The content of an earlier report.

    Raises:
        CheckpointError: it cannot be read, or is no report.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is no JSON: an earlier report is what --report FILE.json writes") from None
    with said_of(path):
        require_report(data)
    return data


def changes_since(path: Path, earlier: Any, facts: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - as above
    """What changed since an earlier report, whose name stands in any error."""
    with said_of(path):
        return difference(earlier, facts)


def write_reports(
    reports: Sequence[Path], facts: Mapping[str, Any], changes: Mapping[str, Any] | None, *, overwrite: bool
) -> None:
    """Write the same facts to each file, as its ending says."""
    for path in reports:
        text = page(facts, changes) if path.suffix == ".html" else json.dumps(facts, indent=1, allow_nan=False) + "\n"
        write_bytes(path, text.encode(), overwrite=overwrite)


def evidence() -> Evidence:
    """Replay the proofs, a few seconds' work, and put what they say beside what is not proved."""
    content = proof_text()
    with working("replaying the proofs"):
        checked = _checked(content)
    lemmas = {f"{LEMMA}{lemma.name}": lemma for lemma in all_lemmas()}
    return Evidence(
        lemmas=[_claim(claim, name=claim.name.removeprefix(LEMMA)) for claim in checked if claim.name in lemmas],
        theorems=[_claim(claim, name=claim.name) for claim in checked if claim.name not in lemmas],
        exhausted=list(paragraphs(EXHAUSTED)),
        assumed=list(paragraphs(ASSUMED)),
        argued=list(paragraphs(NOT_DERIVED)),
        not_covered=list(NOT_COVERED),
        proof_file_sha256=proof_digest(),
    )


@lru_cache(maxsize=1)  # a process that writes several reports replays the proofs once
def _checked(content: str) -> tuple[CheckedClaim, ...]:
    try:
        return tuple(check_certificates(content))
    except ProofFileError as error:
        names = [(f"{LEMMA}{lemma.name}", lemma.statement) for lemma in all_lemmas()]
        return tuple(CheckedClaim(name, text, f"the proof file does not hold: {error}") for name, text in names)


def _claim(claim: CheckedClaim, *, name: str) -> dict[str, str]:
    return {"name": name, "statement": claim.text, "status": claim.problem or "proved"}


def proof_digest() -> str:
    """The SHA-256 of the file of proofs that this package holds."""
    return hashlib.sha256(proof_text().encode()).hexdigest()


def certificate_of(result: Audit) -> Certificate | None:
    """The certificate of this machine, where it is the only one that decided anything."""
    return None if result.elsewhere else platform_certificate()


def run_of(result: Audit, compressed: Path, native: Path, seconds: float, notes: Sequence[str]) -> Run:
    """What was run on what, with the digests of all files."""
    elsewhere = [f"parts were decided on another machine: {machine}" for machine in result.elsewhere]
    return Run(
        subject=compressed.name,
        command=shlex.join(["gmc", *sys.argv[1:]]),
        files=described(files_of(compressed, native)),
        versions=dict(installed_versions()),
        certificate=certificate_of(result),
        seconds=None if REPRODUCIBLE in os.environ else seconds,
        notes=[*notes, *elsewhere],
    )
