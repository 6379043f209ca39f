"""The facts of a report as plain data: what the JSON holds and the page shows, section by section in that order.

Claimed: the same audit, evidence and run give the same data; nothing here depends on the clock.  What the proofs say
comes in from outside, since the oracle does not rest on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guarded_moments.oracle.audit import Audit, TensorAudit, reasons_of
from guarded_moments.oracle.platform import Certificate, this_machine
from guarded_moments.oracle.report.assurance import assumptions, assurance
from guarded_moments.oracle.report.gathering import CODE_BITS, DEVIATION_BINS, GRADIENT_OCTAVES, Gatherer
from guarded_moments.oracle.report.uncovered import uncovered
from guarded_moments.reference.floats import LARGEST_FINITE_BITS, bits_of, from_bits
from guarded_moments.reference.implementations import implementation_named

FORMAT, VERSION = "guarded-moments audit report", 2
_NATIVE_BITS = 64
SHOWN = 100  #: tensors at most that are listed: those with the most trouble first


@dataclass(frozen=True)
class Evidence:
    """What the proofs establish, as the caller found it."""

    lemmas: Sequence[Mapping[str, str]]  #: `name`, `statement`, `status`
    theorems: Sequence[Mapping[str, str]]  #: likewise
    exhausted: Sequence[str]
    assumed: Sequence[str]
    argued: Sequence[str]  #: not derived by the kernel
    not_covered: Sequence[str]
    proof_file_sha256: str

    @property
    def proved(self) -> bool:
        """Whether every lemma and theorem was proved."""
        return all(claim["status"] == "proved" for claim in (*self.lemmas, *self.theorems))


@dataclass(frozen=True)
class Run:
    """What was run on what."""

    subject: str  #: what the report calls the file
    command: str
    files: Sequence[Mapping[str, Any]]  #: `role`, `name`, `bytes`, `sha256`
    versions: Mapping[str, str]
    certificate: Certificate | None
    seconds: float | None = None  #: None leaves the time out, so that two runs give the same bytes
    notes: Sequence[str] = field(default_factory=tuple)  #: of learning rates and steps


def facts_of(result: Audit, gatherer: Gatherer, evidence: Evidence, run: Run, bit_rate: float) -> dict[str, Any]:
    """Everything that the report says; numbers that are not finite are words, as JSON has none of them.

    Args:
        result: the audit of all of them.
        gatherer: that looked at the same files, in the same order.
        evidence: of the proofs.
        run: of the command.
        bit_rate: stored bits a coordinate, all overhead in.
    """
    cases = uncovered(gatherer.nearest.found, gatherer.smallest, gatherer.beyond_bound)
    rows = [_row(tensor, more) for tensor, more in zip(result.tensors, gatherer.tensors, strict=True)]
    rows.sort(key=lambda row: (-row["violations"], -row["undecided"], -row["max_deviation"], row["where"]))
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "claims": _claims(result, gatherer),
        "verdict": _verdict(result, bit_rate),
        "assumptions": assumptions(gatherer, evidence.assumed, run.certificate),
        "not_covered": {
            "cases": [case.as_json() for case in cases],
            "all": list(evidence.not_covered),
            "in_a_sentence": result.not_claimed,
        },
        "trusted_base": _trusted_base(evidence, run),
        "assurance": assurance(result, gatherer, evidence, run.certificate),
        "lemmas": [dict(lemma) for lemma in evidence.lemmas],
        "theorems": [dict(theorem) for theorem in evidence.theorems],
        "tensors": {"of": len(rows), "shown": rows[:SHOWN]},
        "distributions": _distributions(result, gatherer),
        "nearest": [
            {**followed.as_json(), "trace": followed.trace(), "tolerance": followed.stretch.claim.tolerance.value}
            for followed in gatherer.nearest.found
        ],
        "run": {"subject": run.subject, "command": run.command, "seconds": run.seconds, "notes": list(run.notes)},
    }
    data: dict[str, Any] = plain(facts)
    return data


def plain(data: Any) -> Any:  # noqa: ANN401 - JSON
    """The same for JSON, which has no infinity and no NaN: these become words."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    return data if not isinstance(data, float) or math.isfinite(data) else str(data)


def _claims(result: Audit, gatherer: Gatherer) -> list[dict[str, Any]]:
    """One for each tolerance, bound and op model, with its quantifiers filled in."""
    found: dict[str, dict[str, Any]] = {}
    for claim, counted, more in zip(gatherer.claims, result.tensors, gatherer.tensors, strict=True):
        implementation = implementation_named(claim.implementation)
        bound = claim.largest_of_sequence
        entry = found.setdefault(
            claim.sentence(),
            {
                "sentence": claim.sentence(),
                "tolerance": claim.tolerance.value,
                "gradient_bound": bound,
                "gradients": _gradients(min(bound, gatherer.beyond_bound.limit)),
                "horizon": str(claim.horizon),
                "updates": claim.horizon.in_words.rstrip(","),
                "op_model": implementation.name,
                "op_model_evidence": implementation.evidence.value,
                "op_model_remark": implementation.remark,
                "tensors": 0,
                "guarded": 0,
                "exact": 0,
                "learning_rates": [],
                "next_steps": [],
            },
        )
        entry["tensors"] += 1
        entry["exact"] += counted.escapes
        entry["guarded"] += counted.coordinates - counted.escapes
        for name, value in (("learning_rates", more["lr"]), ("next_steps", more["next_step"])):
            entry[name] = sorted({*entry[name], value})
    return list(found.values())


def _gradients(bound: float) -> int:
    """How many finite binary32 values have at most that magnitude, both zeros included."""
    bits = min(bits_of(bound), LARGEST_FINITE_BITS)
    return 2 * (bits + 1 - (from_bits(bits) > bound))


def word_of(result: Audit) -> str:
    """The verdict: only `HOLDS` says that the claim was established for every coordinate."""
    if not result.tensors:
        return "NOTHING IS GUARDED"
    if result.total("undecided") and not result.total("violations"):
        return "UNDECIDED"
    return "HOLDS" if result.holds else "DOES NOT HOLD"


def _verdict(result: Audit, bit_rate: float) -> dict[str, Any]:
    return {
        "word": word_of(result),
        "coordinates": result.coordinates,
        "tensors": len(result.tensors),
        **{
            name: result.total(name)
            for name in (
                "safe",
                "violations",
                "undecided",
                "escapes",
                "needless_escapes",
                "undecided_escapes",
            )
        },
        "kept": dict(sorted(result.kept.items())),
        "bit_rate": bit_rate,
        "max_deviation": max((tensor.max_deviation for tensor in result.tensors), default=0.0),
        "max_deviation_upper": max((tensor.max_deviation_upper for tensor in result.tensors), default=0.0),
        "violations_shown": [finding.as_json() for finding in result.findings],
        "later": {**result.afterwards.as_json(), "sentences": result.afterwards.sentences()},
    }


def _row(tensor: TensorAudit, more: Mapping[str, Any]) -> dict[str, Any]:
    accepted = tensor.coordinates - tensor.escapes
    bits = 8 * more["code_bytes"] + _NATIVE_BITS * tensor.escapes
    rate = bits / tensor.coordinates if tensor.coordinates else 0.0
    return {**vars(tensor), **more, "accepted": accepted, "bit_rate": rate}


def _trusted_base(evidence: Evidence, run: Run) -> dict[str, Any]:
    machine = this_machine()
    return {
        "versions": dict(run.versions),
        "files": [dict(file) for file in run.files],
        "machine": dict(vars(machine)),
        "certificate": [] if run.certificate is None else run.certificate.sentences(),
        "certified": run.certificate is not None and run.certificate.certified,
        "proof_file_sha256": evidence.proof_file_sha256,
    }


def _distributions(result: Audit, gatherer: Gatherer) -> dict[str, Any]:
    return {
        "drawn": gatherer.drawn,
        "of": gatherer.guarded,
        "deviations": {
            "bins": DEVIATION_BINS,
            "unit": "tolerance",
            "counts": gatherer.deviations().tolist()[:DEVIATION_BINS],
            "above": gatherer.deviations().tolist()[DEVIATION_BINS],
        },
        "gradients": {"octaves": GRADIENT_OCTAVES, "counts": gatherer.gradients().tolist()},
        "codes": {name: counts.tolist() for name, counts in gatherer.codes.items()},
        "code_bits": CODE_BITS,
        "escapes": dict(sorted(reasons_of(result).items(), key=lambda item: (-item[1], item[0]))),
    }
