"""The attestation: what an audit found of which files, as an in-toto Statement v1 with a test-result predicate v0.1.

    subject         every file of the compressed checkpoint and of the native one, by SHA-256
    predicate       result; the claim and the tools as configuration; each thing that was tested, passed or not
        guarded_moments    an extension field: claims, counts and the machine as plain data

Claimed: a statement says PASSED or WARNED only of an audit that established the claim for every coordinate; what was
not decided has FAILED.  `mismatches` is empty only if the files are those of the statement, bit for bit, and the claims
those of the compressed file.  Not claimed: who wrote it.  A statement is not signed; whoever needs that puts it into an
envelope (DSSE), as in-toto's tools do.

Specification: github.com/in-toto/attestation, spec/v1 and spec/predicates/test-result.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guarded_moments.oracle.audit import Audit
from guarded_moments.oracle.platform import Certificate, this_machine
from guarded_moments.oracle.report.facts import plain, word_of
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.errors import CheckpointError

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
#: The extension field of the predicate, and its version.
EXTENSION, VERSION = "guarded_moments", 1
#: Names of what is tested, as they stand in the lists of the predicate.
OWN, EXACT, CLAIM, ROOT = (
    "the compressed file is the native checkpoint's own",
    "what is stored exactly is the native pair",
    "the claim holds for every coordinate and every gradient of the claim",
    "torch.sqrt is certified on the machine that decided",
)
#: Those without which a claim is not established.
REQUIRED = (OWN, EXACT, CLAIM)
COMPRESSED, NATIVE = ROLES = ("compressed", "native")


class Claims:
    """What the files of a checkpoint claim, tensors of one claim counted together."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], dict[str, Any]] = {}

    def add(self, state: GuardedState) -> None:
        """Take in a file."""
        for tensor in state.tensors:
            claim = state.claim_for(tensor)
            stated = {
                "op_model": tensor.implementation,
                "tolerance": claim.tolerance.value,
                "gradient_bound": claim.largest_of_sequence,
                "horizon": str(claim.horizon),
                "learning_rate": tensor.lr,
                "next_step": tensor.next_step,
            }
            sentence = {"sentence": claim.sentence()}
            entry = self._found.setdefault(
                tuple(stated.values()), {**sentence, **stated, "tensors": 0, "coordinates": 0}
            )
            entry["tensors"] += 1
            entry["coordinates"] += tensor.numel

    def listed(self) -> list[dict[str, Any]]:
        """All of them as plain data, in an order that does not depend on that of the files."""
        ordered: list[dict[str, Any]] = plain([self._found[key] for key in sorted(self._found)])
        return ordered


@dataclass(frozen=True)
class Tools:
    """What an audit was made with."""

    versions: Mapping[str, str]
    proof_file_sha256: str
    certificate: Certificate | None  #: of every machine that decided


def statement(
    result: Audit, claims: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]], tools: Tools
) -> dict[str, Any]:
    """The statement about an audit.

    Args:
        result: of all files.
        claims: of `Claims`.
        files: `role`, `name`, `bytes` and `sha256` of each that was read.
        tools: that it was made with.
    """
    certified = tools.certificate is not None and tools.certificate.certified
    outcomes = {
        OWN: True,  # the audit refuses what is not
        EXACT: result.total("violations") == 0,
        CLAIM: result.holds and bool(result.tensors),
    }
    failed = [name for name, passed in outcomes.items() if not passed]
    warned = [] if certified else [ROOT]
    return {
        "_type": STATEMENT,
        "subject": [
            {
                "name": file["name"],
                "digest": {"sha256": file["sha256"]},
                "annotations": {"role": file["role"], "bytes": file["bytes"]},
            }
            for file in files
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "result": "FAILED" if failed else "WARNED" if warned else "PASSED",
            "configuration": [
                {
                    "name": "claims",
                    "mediaType": "application/json",
                    "content": base64.b64encode(_canonical(claims)).decode(),
                },
                {"name": "proofs", "digest": {"sha256": tools.proof_file_sha256}},
                *({"name": name, "uri": _package(name, version)} for name, version in tools.versions.items()),
            ],
            "passedTests": [name for name, passed in outcomes.items() if passed] + ([ROOT] if certified else []),
            "warnedTests": warned,
            "failedTests": failed,
            EXTENSION: {
                "version": VERSION,
                "verdict": word_of(result),
                "claims": [dict(claim) for claim in claims],
                "not_claimed": result.not_claimed,
                "coordinates": result.coordinates,
                **{
                    name: result.total(name)
                    for name in ("safe", "violations", "undecided", "escapes", "needless_escapes")
                },
                "kept": dict(result.kept),
                "max_deviation": plain(max((t.max_deviation for t in result.tensors), default=0.0)),
                "max_deviation_upper": plain(max((t.max_deviation_upper for t in result.tensors), default=0.0)),
                "machine": dict(vars(this_machine())),
                "elsewhere": list(result.elsewhere),
                "certificate": [] if tools.certificate is None else tools.certificate.sentences(),
            },
        },
    }


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _package(name: str, version: str) -> str:
    """As a package URL."""
    kind = "generic" if name == "Python" else "pypi"
    return f"pkg:{kind}/{name.lower()}@{version.replace('+', '%2B')}"


@dataclass(frozen=True)
class Attested:
    """What a statement says."""

    result: str
    verdict: str
    claims: list[dict[str, Any]]
    files: list[dict[str, Any]]  #: `role`, `name`, `sha256`
    passed: list[str]
    warned: list[str]
    failed: list[str]


def attested(data: Any) -> Attested:  # noqa: ANN401 - whatever a file holds
    """Read a statement.

    Raises:
        CheckpointError: it is none, or not about an audit.
    """
    if not isinstance(data, dict) or data.get("_type") != STATEMENT:
        raise CheckpointError(f"is no in-toto statement: its _type is not {STATEMENT}")
    if data.get("predicateType") != PREDICATE:
        raise CheckpointError(f"is about something else: its predicateType is not {PREDICATE}")
    try:
        predicate = data["predicate"]
        own = predicate[EXTENSION]
        if own["version"] != VERSION:
            raise CheckpointError(f"is of version {own['version']!r} of our field, and this program knows {VERSION}")
        found = Attested(
            result=str(predicate["result"]),
            verdict=str(own["verdict"]),
            claims=[dict(claim) for claim in own["claims"]],
            files=[
                {"role": one["annotations"]["role"], "name": str(one["name"]), "sha256": str(one["digest"]["sha256"])}
                for one in data["subject"]
            ],
            passed=[str(name) for name in predicate["passedTests"]],
            warned=[str(name) for name in predicate["warnedTests"]],
            failed=[str(name) for name in predicate["failedTests"]],
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"is no attestation that gmc audit --attestation wrote: {type(error).__name__}: {error}"
        ) from None
    return found


def mismatches(said: Attested, claims: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]]) -> list[str]:
    """What keeps a statement and files from belonging together, a line each; files are told by digest, not by name.

    Args:
        said: of the statement.
        claims: of the compressed file, of `Claims`.
        files: as for `statement`.
    """
    lines = []
    for role in ROLES:
        known = {one["sha256"]: one["name"] for one in said.files if one["role"] == role}
        here = {one["sha256"]: one["name"] for one in files if one["role"] == role}
        lines += [
            f"{name}: this {role} file is not one that the attestation is about (SHA-256 {digest[:16]}...)"
            for digest, name in here.items()
            if digest not in known
        ]
        lines += [
            f"{name}: the attestation is about this {role} file too, which is not there (SHA-256 {digest[:16]}...)"
            for digest, name in known.items()
            if digest not in here
        ]
    stated = {_canonical(claim): claim for claim in said.claims}
    own = {_canonical(claim): claim for claim in claims}
    lines += [f"the file claims what was not attested: {_told(own[one])}" for one in own if one not in stated]
    lines += [f"attested is what the file does not claim: {_told(stated[one])}" for one in stated if one not in own]
    return lines


def _told(claim: Mapping[str, Any]) -> str:
    sentence, lr, step = (claim.get(name) for name in ("sentence", "learning_rate", "next_step"))
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    return f"{sentence}, at lr {lr}, update {step} ({claim.get('coordinates')} coordinates)"


def unsupported(said: Attested) -> list[str]:
    """Why the statement, whole as it is, does not say that the claim holds; a line each."""
    lines = [f"failed: {name}" for name in said.failed]
    lines += [f"neither passed nor failed: {name}" for name in REQUIRED if name not in {*said.passed, *said.failed}]
    if said.result not in {"PASSED", "WARNED"}:
        lines.append(f"its result is {said.result}")
    if said.verdict != "HOLDS":
        lines.append(f"the verdict of the audit was {said.verdict}")
    return lines
