"""`gmc audit`: check every coordinate, and say what was and was not established."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from guarded_moments.oracle.audit import Audit, Finding, audit, combined, reasons_of
from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.cli.audit_report import print_schema
from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    force_option,
    foreign_rates,
    is_folder,
    out,
    percent,
    progress_bar,
    said_of,
)
from guarded_moments.oracle.platform import platform_certificate
from guarded_moments.oracle.report import Gatherer, facts_of
from guarded_moments.oracle.stuck_steps import stuck_steps
from guarded_moments.reference.checkpoint import GuardedState, load_checkpoint, read
from guarded_moments.reference.checkpoint.distributed import Folder, shards_of
from guarded_moments.reference.checkpoint.file_format import bytes_beside
from guarded_moments.reference.checkpoint.writing import check_output, replacing
from guarded_moments.reference.floats import hex_of


@click.command("audit")
@click.argument("compressed", type=FILE)
@click.option("--native", type=FILE, required=True, help="The checkpoint that was compressed.")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write the same result as JSON.")
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
    "--report-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_schema,
    help="Only print the schema of the report's JSON.",
)
@click.option("--lr", type=NUMBER, help="Audit the claim at this learning rate instead of the one in the file.")
@force_option
@click.option("-v", "--verbose", is_flag=True, help="One line per tensor.")
def command(
    compressed: Path,
    native: Path,
    json_file: Path | None,
    reports: tuple[Path, ...],
    earlier: Path | None,
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

    A report also replays the proofs, compares torch with the op model on these states, and looks for counterexamples
    to what is not claimed.  With SOURCE_DATE_EPOCH set the time it took is left out, so that two runs give equal bytes.
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    given = (compressed, native, *(() if earlier is None else (earlier,)))
    if json_file is not None:
        check_output(json_file, overwrite=force, inputs=(*given, *reports))
    audit_report.require(reports, overwrite=force, inputs=given)
    if earlier is not None and not any(path.suffix == ".html" for path in reports):
        raise click.UsageError("--compare shows its changes in a page: give --report FILE.html too")
    before = None if earlier is None else audit_report.read_earlier(earlier)
    started = time.perf_counter()
    results, rates, size = [], dict[str, None](), 0
    gatherer = Gatherer() if reports else None
    for path, state, checkpoint in _files(compressed, native):
        audited = state if lr is None else state.at_rate(lr)
        text = f"auditing {state.coordinates:,} coordinates of {len(state.tensors)} tensors"
        with progress_bar(text) as progress, said_of(native):
            results.append(audit(audited, checkpoint, progress))
        if gatherer is not None:
            with progress_bar("looking for counterexamples beyond the claim") as progress:
                gatherer.add(audited, checkpoint, progress)
        rates.update(dict.fromkeys((*foreign_rates(audited), *stuck_steps(audited))))
        size += path.stat().st_size - bytes_beside(path)
    seconds = time.perf_counter() - started
    result = combined(results)
    bit_rate = 8 * size / result.coordinates if result.coordinates else 0.0
    if json_file is not None:
        content = json.dumps(as_json(result, bit_rate), indent=1)
        with replacing(json_file, overwrite=force) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")
    if gatherer is not None:
        evidence = audit_report.evidence()
        files = audit_report.files_of(compressed, native)
        run = audit_report.run_of(compressed, files, time.perf_counter() - started, list(rates))
        facts = facts_of(result, gatherer, evidence, run, bit_rate)
        changes = None if earlier is None else audit_report.changes_since(earlier, before, facts)
        audit_report.write_reports(reports, facts, changes, overwrite=force)
    console = out()
    if verbose:
        console.print(_tensor_table(result))
    for line in rates:
        console.print(line)
    _summary(console, result, bit_rate, seconds)
    for path in reports:
        console.print(f"report    {path}")
    return 0 if result.holds else 1


def _files(compressed: Path, native: Path) -> Iterator[tuple[Path, GuardedState, dict[str, Any]]]:
    """The compressed files with their states and the native checkpoints they were made from: one, or a folder's."""
    if not is_folder(compressed):
        yield compressed, read(compressed), load_checkpoint(native)
        return
    folder = Folder(native)
    for shard in shards_of(compressed):
        yield shard.path, shard.state, folder.shard(shard.file)


def as_json(result: Audit, bit_rate: float) -> dict[str, Any]:
    """The result as plain data: counts, deviations in learning rates, values as hexadecimal with bits."""
    certificate = platform_certificate()
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
        "found_violations": [finding.as_json() for finding in result.findings],
        "platform": result.platform,
        "platform_certificate": None if certificate is None else certificate.as_json(),
        "tensors": [vars(tensor) for tensor in result.tensors],
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
    for finding in result.findings:
        console.print(f"violation {_in_words(finding)}")
    certificate = platform_certificate()
    for sentence in (
        ["torch.sqrt: not certified here; run gmc certify-platform"] if certificate is None else certificate.sentences()
    ):
        console.print(f"platform  {sentence}")
    console.print(f"time      {seconds:.1f} s on {result.platform}")
    console.print(f"not claimed: {result.not_claimed}")


def _in_words(finding: Finding) -> str:
    place = f"{finding.where}[{', '.join(map(str, finding.position))}]"
    state = f"m {hex_of(finding.m)} -> {hex_of(finding.m_hat)}, v {hex_of(finding.v)} -> {hex_of(finding.v_hat)}"
    if finding.gradient is None or finding.deviation is None:
        return f"{place}: the stored pair is not the native one, and not covered by the guard; {state}"
    return f"{finding.deviation:.8g} lr at {place}, g = {hex_of(finding.gradient)}\n          {state}"


def _tensor_table(result: Audit) -> Table:
    table = Table("tensor", box=None)
    for name in ("coordinates", "safe", "violations", "undecided", "escaped", "needless", "largest deviation"):
        table.add_column(name, justify="right")
    for t in result.tensors:
        counts = (t.coordinates, t.safe, t.violations, t.undecided, t.escapes, t.needless_escapes)
        table.add_row(t.where, *(f"{count:,}" for count in counts), f"{t.max_deviation:.6f} lr")
    return table
