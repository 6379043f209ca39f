"""`gmc verify`: whether a compressed checkpoint, its native one and an attestation belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from guarded_moments.oracle.audit import require_own
from guarded_moments.oracle.cli.audited_files import described, files_of, pairs
from guarded_moments.oracle.cli.common import FILE, out, said_of, working
from guarded_moments.oracle.report.attestation import Attested, Claims, attested, mismatches, unsupported
from guarded_moments.reference.errors import CheckpointError


@click.command("verify")
@click.argument("compressed", type=FILE)
@click.option("--native", type=FILE, required=True, help="The checkpoint that was compressed.")
@click.option(
    "--attestation", type=FILE, required=True, metavar="FILE", help="What gmc audit --attestation wrote of them."
)
def command(compressed: Path, native: Path, attestation: Path) -> int:
    """Check that COMPRESSED (a .gmc file, or a folder of them), its native checkpoint and its attestation fit.

    Every file must be one that the attestation is about, by SHA-256, and none may be missing; the claims in the
    compressed file must be those that were attested; the file must be the native checkpoint's own, which is compared
    again, bit for bit; and the attested outcome must be that the claim holds for every coordinate.  Coordinates are not
    decided again: that is `gmc audit`.

    Exit status 0 if all of that is so, 1 if any of it is not, 2 if something cannot be read or is no attestation.
    An attestation is not signed by gmc: who may write it may write anything in it.

    \b
      gmc audit  optimizer.gmc --native optimizer.pt --attestation optimizer.intoto.json
      gmc verify optimizer.gmc --native optimizer.pt --attestation optimizer.intoto.json
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    said = _read(attestation)
    found, foreign = Claims(), []
    for path, state, checkpoint in pairs(compressed, native):
        try:
            with working(f"comparing {path}"):
                require_own(state, checkpoint)
        except CheckpointError as error:
            foreign.append(f"{path.name}: {error}")
        found.add(state)
    claims = found.listed()
    files = described(files_of(compressed, native))
    apart = [*mismatches(said, claims, files), *foreign]
    against = unsupported(said)
    console = out()
    for claim in claims:
        console.print(f"claim     {claim['sentence']}")
    console.print(f"files     {len(files)} here, {len(said.files)} attested")
    console.print(f"attested  {said.result}: {said.verdict}")
    for name in said.warned:
        console.print(f"warning   not shown: {name}")
    for line in (*apart, *against):
        console.print(f"problem   {line}")
    verdict = "BELONG TOGETHER, and the claim was found to hold"
    if apart:
        verdict = "DO NOT BELONG TOGETHER"
    elif against:
        verdict = "BELONG TOGETHER, but the attestation does not say that the claim holds"
    console.print(f"verdict   {verdict}")
    return 1 if apart or against else 0


def _read(path: Path) -> Attested:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is no JSON, and so no attestation") from None
    with said_of(path):
        return attested(data)
