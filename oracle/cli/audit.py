"""`gmc audit`: check every coordinate, and say what was and was not established."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from guarded_moments.oracle.audit import Audit, Finding, audit, combined, reasons_of
from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.cli.audit_attestation import Attesting
from guarded_moments.oracle.cli.audit_report import print_schema
from guarded_moments.oracle.cli.audit_workers import deciding
from guarded_moments.oracle.cli.audited_files import pairs
from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    force_option,
    foreign_rates,
    implementation_option,
    out,
    percent,
    progress_bar,
    said_of,
)
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json
from guarded_moments.oracle.report import Gatherer, facts_of, plain
from guarded_moments.oracle.stuck_steps import stuck_steps
from guarded_moments.reference.checkpoint.file_format import bytes_beside
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.floats import hex_of


@click.command("audit")
@click.argument("compressed", type=FILE)
@click.option("--native", type=FILE, required=True, help="The checkpoint that was compressed.")
@json_option
@click.option(
    "--report",
    "reports",
    type=FILE,
    metavar="FILE",
    multiple=True,
    help="Write what an auditor reads: one page (.html), or the same as JSON (.json). May be given twice.",
)
@click.option(
    "--compare", "earlier", type=FILE, metavar="FILE.json", help="Show in the page what changed since that report."
)
@click.option(
    "--attestation",
    type=FILE,
    metavar="FILE",
    help="Write an in-toto statement: which files, which claim, what was found. gmc verify checks it.",
)
@click.option(
    "--report-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_schema,
    help="Only print the schema of the report's JSON.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes of this machine that decide; each takes a part of a tensor at a time.",
)
@click.option("--dask", "address", metavar="ADDRESS", help="Let the workers of a running Dask cluster decide instead.")
@implementation_option("What searches; no verdict differs.", "files")
@click.option("--lr", type=NUMBER, help="Audit the claim at this learning rate instead of the one in the file.")
@force_option
@click.option("-v", "--verbose", is_flag=True, help="One line per tensor.")
def command(
    compressed: Path,
    native: Path,
    json_file: Path | None,
    reports: tuple[Path, ...],
    earlier: Path | None,
    attestation: Path | None,
    workers: int,
    address: str | None,
    kernels: Kernels,
    lr: float | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
    verbose: bool,  # noqa: FBT001 - as above
) -> int:
    """Audit COMPRESSED (a .gmc file, or a folder of them) against the native checkpoint: every coordinate, no sample.

    Each coordinate is decoded, its worst gradient within the bound is searched, and the claim is decided on the
    bit-exact op model.  Exit status 0 only if there is no violation and nothing is undecided, else 1.

    \b
      gmc audit optimizer.gmc --native optimizer.pt --report report.html --report report.json
      gmc audit newer.gmc --native newer.pt --report report.html --compare earlier.json
      gmc audit optimizer.gmc --native optimizer.pt --attestation optimizer.intoto.json
      gmc audit checkpoint.gmc --native checkpoint --workers 8

    A report also replays the proofs, compares torch with the op model on these states, and looks for counterexamples
    to what is not claimed.  With SOURCE_DATE_EPOCH set the time it took is left out, so that two runs give equal bytes.
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    _refuse_contradictions(reports, earlier, attestation, workers, address, lr)
    given = (compressed, native, *(() if earlier is None else (earlier,)))
    check_outputs((json_file, attestation), (*given, *reports), overwrite=force)
    audit_report.require(reports, overwrite=force, inputs=given)
    before = None if earlier is None else audit_report.read_earlier(earlier)
    attesting = None if attestation is None else Attesting(compressed, native)
    job = _Job(Gatherer() if reports else None, attesting)
    with deciding(workers, address) as who:
        job.run(compressed, native, lr, {**who, "kernels": kernels})
    result, bit_rate, seconds = combined(job.results), job.bit_rate, job.seconds
    if json_file is not None:
        write_json(json_file, as_json(result, bit_rate), force=force)
    if job.gatherer is not None:
        evidence = audit_report.evidence()
        run = audit_report.run_of(result, compressed, native, time.perf_counter() - job.started, list(job.rates))
        facts = facts_of(result, job.gatherer, evidence, run, bit_rate)
        changes = None if earlier is None else audit_report.changes_since(earlier, before, facts)
        audit_report.write_reports(reports, facts, changes, overwrite=force)
    if attesting is not None and attestation is not None:
        attesting.write(attestation, result, overwrite=force)
    console = out(quiet=json_file == STANDARD_OUTPUT)
    if verbose:
        console.print(_tensor_table(result))
    for line in job.rates:
        console.print(line)
    _summary(console, result, bit_rate, seconds)
    for kind, path in [*(("report", path) for path in reports), ("attested", attestation)]:
        if path is not None:
            console.print(f"{kind:<9} {path}")
    return 0 if result.holds else 1


def _refuse_contradictions(
    reports: Sequence[Path],
    earlier: Path | None,
    attestation: Path | None,
    workers: int,
    address: str | None,
    lr: float | None,
) -> None:
    if address is not None and workers > 1:
        raise click.UsageError("--workers and --dask exclude each other")
    if attestation is not None and lr is not None:
        raise click.UsageError("--attestation is about the file's own claim, and --lr audits another")
    if earlier is not None and not any(path.suffix == ".html" for path in reports):
        raise click.UsageError("--compare shows its changes in a page: give --report FILE.html too")


class _Job:
    """File after file through the audit, and through what else looks at them."""

    def __init__(self, gatherer: Gatherer | None, attesting: Attesting | None) -> None:
        self.gatherer, self._attesting = gatherer, attesting
        self.results: list[Audit] = []
        self.rates: dict[str, None] = {}  #: lines about learning rates and steps, each once
        self.started = time.perf_counter()
        self.seconds = 0.0  #: that the files took
        self._size = 0

    @property
    def bit_rate(self) -> float:
        """Stored bits a coordinate, of the optimizers' states alone."""
        coordinates = sum(result.coordinates for result in self.results)
        return 8 * self._size / coordinates if coordinates else 0.0

    def run(self, compressed: Path, native: Path, lr: float | None, who: Mapping[str, Any]) -> None:
        """Audit every file; `who` decides, as `audit` takes it."""
        for path, state, checkpoint in pairs(compressed, native):
            audited = state if lr is None else state.at_rate(lr)
            text = f"auditing {state.coordinates:,} coordinates of {len(state.tensors)} tensors"
            with progress_bar(text) as progress, said_of(native):
                self.results.append(audit(audited, checkpoint, progress, **who))
            if self.gatherer is not None:
                with progress_bar("looking for counterexamples beyond the claim") as progress:
                    self.gatherer.add(audited, checkpoint, progress)
            if self._attesting is not None:
                self._attesting.claims.add(state)
            self.rates.update(dict.fromkeys((*foreign_rates(audited), *stuck_steps(audited))))
            self._size += path.stat().st_size - bytes_beside(path)
        self.seconds = time.perf_counter() - self.started


def as_json(result: Audit, bit_rate: float) -> dict[str, Any]:
    """The result as plain data: counts, deviations in learning rates, values as hexadecimal with bits."""
    certificate = audit_report.certificate_of(result)
    return {
        "claims": result.claims,
        "not_claimed": result.not_claimed,
        "holds": result.holds,
        "coordinates": result.coordinates,
        "violations": result.total("violations"),
        "undecided": result.total("undecided"),
        "safe": result.total("safe"),
        "escapes": result.total("escapes"),
        "needless_escapes": result.total("needless_escapes"),
        "undecided_escapes": result.total("undecided_escapes"),
        "escape_reasons": reasons_of(result),
        "kept": result.kept,
        "bit_rate": bit_rate,
        "max_deviation": max((t.max_deviation for t in result.tensors), default=0.0),
        "max_deviation_upper": max((t.max_deviation_upper for t in result.tensors), default=0.0),
        "max_deviation_at": None if result.closest is None else result.closest.as_json(),
        "later_updates": plain(result.afterwards.as_json()),
        "max_later_deviation_at": None if result.closest_later is None else result.closest_later.as_json(),
        "found_violations": [finding.as_json() for finding in result.findings],
        "platform": result.platform,
        "elsewhere": result.elsewhere,
        "platform_certificate": None if certificate is None else certificate.as_json(),
        "tensors": [plain(vars(tensor)) for tensor in result.tensors],
    }


def _summary(console: Console, result: Audit, bit_rate: float, seconds: float) -> None:
    data = as_json(result, bit_rate)
    verdict = "HOLDS on every coordinate" if result.holds else "DOES NOT HOLD"
    if result.total("undecided") and not result.total("violations"):
        verdict = "UNDECIDED: the search ran out of its budget on some coordinates"
    for sentence in result.claims or ["nothing is guarded in this file"]:
        console.print(f"claim     {sentence}")
    console.print(f"verdict   {verdict}    {data['violations']:,} violations, {data['undecided']:,} undecided")
    exact = f"{percent(data['escapes'], result.coordinates)} exact"
    needless = f"{percent(data['needless_escapes'], result.coordinates)} needlessly"
    console.print(
        f"checked   {result.coordinates:,} coordinates: {data['safe']:,} safe for every gradient, "
        f"{data['escapes']:,} escaped, {sum(result.kept.values()):,} kept whole"
    )
    console.print(f"stored    {bit_rate:.2f} bits per coordinate, {exact} ({needless})")
    if result.closest is not None:
        console.print(f"closest   {_in_words(result.closest)}")
        console.print(
            f"          certified: no gradient moves any update by more than {data['max_deviation_upper']:.8g} lr"
        )
    if result.closest_later is not None:
        console.print(f"at last   {_in_words(result.closest_later)}")
    for begins, sentence in zip(("later", "", ""), result.afterwards.sentences(), strict=False):
        console.print(f"{begins:<9} {sentence}")
    for finding in result.findings:
        console.print(f"violation {_in_words(finding)}")
    certificate = audit_report.certificate_of(result)
    for sentence in (
        ["torch.sqrt: not certified here; run gmc certify-platform"] if certificate is None else certificate.sentences()
    ):
        console.print(f"platform  {sentence}")
    for machine in result.elsewhere:
        console.print(f"platform  parts were decided on another machine, of which that says nothing: {machine}")
    console.print(f"time      {seconds:.1f} s on {result.platform}")
    console.print(f"not claimed: {result.not_claimed}")


def _in_words(finding: Finding) -> str:
    place = f"{finding.where}[{', '.join(map(str, finding.position))}]"
    state = f"m {hex_of(finding.m)} -> {hex_of(finding.m_hat)}, v {hex_of(finding.v)} -> {hex_of(finding.v_hat)}"
    if finding.gradient is None or finding.deviation is None:
        return f"{place}: the stored pair is not the native one, and not covered by the guard; {state}"
    update = "" if finding.update == 1 else f" at update {finding.update} of the worst sequence, the last of it"
    return f"{finding.deviation:.8g} lr at {place}{update}, g = {hex_of(finding.gradient)}\n          {state}"


def _tensor_table(result: Audit) -> Table:
    table = Table("tensor", box=None)
    for name in ("coordinates", "safe", "violations", "undecided", "escaped", "needless", "largest deviation"):
        table.add_column(name, justify="right")
    for t in result.tensors:
        counts = (t.coordinates, t.safe, t.violations, t.undecided, t.escapes, t.needless_escapes)
        table.add_row(t.where, *(f"{count:,}" for count in counts), f"{t.max_deviation:.6f} lr")
    return table
