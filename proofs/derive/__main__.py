"""`python -m guarded_moments.proofs.derive`: find all proofs again and write the proof file."""

from __future__ import annotations

import sys
from pathlib import Path

from guarded_moments.proofs.check import FIRST_UPDATE, PROOF_FILE
from guarded_moments.proofs.derive.context import Prover
from guarded_moments.proofs.derive.first_update import FirstUpdate
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.statement import families, statement


def derive() -> str:
    """Derive every claim.

    Returns:
        The content of the proof file.
    """
    tools = Toolbox(Prover())
    for name in tools.lemmas.all:
        tools.lemmas(name)
    theorem = FirstUpdate(tools)
    for family in families():
        tools.prover.recording.name(f"{FIRST_UPDATE}{family.name}", theorem.derive(statement(family)))
        print(f"derived {family.name}", file=sys.stderr)  # noqa: T201 - progress of a script
    return tools.prover.recording.text()


if __name__ == "__main__":
    target = Path(__file__).parents[1] / PROOF_FILE
    target.parent.mkdir(exist_ok=True)
    target.write_text(derive(), encoding="utf-8")
    print(f"wrote {target}")  # noqa: T201 - the result of a script
