"""`gmc audit --attestation`: the statement about what was audited, with the digests of the files that were read.

Claimed: a statement is written only if no file changed between its first byte's reading and the end of the audit, as
far as two digests can tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guarded_moments.oracle.audit import Audit
from guarded_moments.oracle.cli.audit_report import certificate_of, proof_digest
from guarded_moments.oracle.cli.audited_files import described, files_of
from guarded_moments.oracle.report.attestation import Claims, Tools, statement
from guarded_moments.proofs.trusted_base import installed_versions
from guarded_moments.reference.checkpoint.writing import write_bytes
from guarded_moments.reference.errors import CheckpointError


class Attesting:
    """Files as they are before an audit reads them, and the claims that it finds in them."""

    def __init__(self, compressed: Path, native: Path) -> None:
        self._paths = (compressed, native)
        self._files = described(files_of(*self._paths))
        self.claims = Claims()

    def write(self, path: Path, result: Audit, *, overwrite: bool) -> None:
        """Write the statement.

        Raises:
            CheckpointError: a file is not what it was before the audit, or the statement cannot be written.
        """
        self._require_unchanged(described(files_of(*self._paths)))
        tools = Tools(dict(installed_versions()), proof_digest(), certificate_of(result))
        content = statement(result, self.claims.listed(), self._files, tools)
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_bytes(path, text.encode(), overwrite=overwrite)

    def _require_unchanged(self, now: Sequence[Mapping[str, Any]]) -> None:
        if now != self._files:
            changed = sorted(
                {str(one["name"]) for one in (*now, *self._files) if one not in now or one not in self._files}
            )
            raise CheckpointError(
                f"{', '.join(changed)}: changed while it was audited; no attestation was written, audit again"
            )
