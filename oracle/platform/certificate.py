"""What was established about this machine, kept in a folder of the user's and shown in reports.

Claimed: a certificate that `platform_certificate` returns was made on a machine of this description, and this process's
`torch.sqrt` gives the same 130,000 roots as then.  Trusted: that folder.  A quick look never replaces a certificate of
all inputs; a certificate that fails does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from guarded_moments.oracle.platform.arithmetic_evidence import ArithmeticEvidence
from guarded_moments.oracle.platform.first_call import FirstCalls
from guarded_moments.oracle.platform.machine import Machine, this_machine
from guarded_moments.oracle.platform.root import RootEvidence, spot_fingerprint
from guarded_moments.oracle.platform.root_placement import Placement
from guarded_moments.oracle.platform.root_sweep import Beyond, Sweep
from guarded_moments.reference.checkpoint.writing import replacing
from guarded_moments.reference.errors import PlatformError

_VERSION = 1  #: of the file; another is not read
_STATE_HOME = "XDG_STATE_HOME"


@dataclass(frozen=True)
class Certificate:
    """Evidence about one machine; either part may be missing."""

    machine: Machine
    root: RootEvidence | None = None
    arithmetic: ArithmeticEvidence | None = None

    @property
    def certified(self) -> bool:
        """Whether the square root was certified on all inputs, and no mismatch of the arithmetic is known."""
        root_holds = self.root is not None and self.root.certified
        return root_holds and (self.arithmetic is None or self.arithmetic.differing == 0)

    def sentences(self) -> list[str]:
        """One line for each part, for reports."""
        lines = [f"{self.root.sentence()} ({self.root.date[:10]}, {self.machine.cpu})"] if self.root else []
        return [*lines, f"{self.arithmetic.sentence()} ({self.arithmetic.date[:10]})"] if self.arithmetic else lines

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        root = None
        if self.root is not None:
            root = asdict(self.root) | {"beyond": self.root.beyond._asdict()}
        return {
            "version": _VERSION,
            "certified": self.certified,
            "machine": asdict(self.machine),
            "root": root,
            "arithmetic": None if self.arithmetic is None else asdict(self.arithmetic),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The inverse of `as_json`.

        Raises:
            KeyError, TypeError: this is no certificate of this version.
        """
        if data["version"] != _VERSION:
            raise KeyError(data["version"])
        root, arithmetic = data["root"], data["arithmetic"]
        if root is not None:
            parts = {
                "finite": Sweep(**root["finite"]),
                "beyond": Beyond(**root["beyond"]),
                "placement": Placement(**root["placement"]),
                "first_calls": FirstCalls(**root["first_calls"]),
            }
            root = RootEvidence(**{**root, **parts})
        if arithmetic is not None:
            arithmetic = ArithmeticEvidence(**{**arithmetic, "examples": tuple(arithmetic["examples"])})
        return cls(Machine(**data["machine"]), root, arithmetic)

    def merged(self, earlier: Certificate | None) -> Certificate:
        """This one, with what an earlier one of the same machine says better.

        The earlier root stays if this one is a quick look, unless that found something against it.
        """
        if earlier is None:
            return self
        root, before = self.root, earlier.root
        if root is None or (before is not None and before.complete and not root.complete and not root.problems):
            root = before
        return replace(self, root=root, arithmetic=self.arithmetic or earlier.arithmetic)


def certificate_path(machine: Machine | None = None) -> Path:
    """Where the certificate of a machine is kept; of this one, if none is given."""
    home = os.environ.get(_STATE_HOME, "")
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return folder / "guarded-moments" / f"platform-{(machine or this_machine()).key}.json"


def platform_certificate() -> Certificate | None:
    """The certificate of this machine, None if there is none.

    None, too, if this process's `torch.sqrt` is not the one that was certified.
    """
    machine = this_machine()
    try:
        certificate = Certificate.from_json(json.loads(certificate_path(machine).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if certificate.machine != machine:
        return None
    if certificate.root is not None and certificate.root.spot != spot_fingerprint():
        return None
    return certificate


def keep(certificate: Certificate) -> Path:
    """Write a certificate where `platform_certificate` finds it, all of it or nothing.

    Raises:
        PlatformError: the folder cannot be written.
        CheckpointError: the file cannot.
    """
    path = certificate_path(certificate.machine)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(f"{path.parent}: cannot be made: {error.strerror or error}") from None
    text = json.dumps(certificate.as_json(), indent=1)
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return path
