"""`python -m guarded_moments.proofs.derive`: find all proofs again and write the proof file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from guarded_moments.proofs.cell_deviation import cell_deviation
from guarded_moments.proofs.cell_evaluation import evaluated_at_gradient, evaluated_by_ends, evaluated_by_slopes
from guarded_moments.proofs.cells import cell_by_ends, cell_by_slopes
from guarded_moments.proofs.check import (
    ACCEPTED,
    CELL_BY_ENDS,
    CELL_BY_SLOPES,
    CELL_DEVIATION,
    CLEARED,
    CUT,
    EVALUATED_AT_GRADIENT,
    EVALUATED_BY_ENDS,
    EVALUATED_BY_SLOPES,
    EVALUATION,
    EVERY,
    FIRST_UPDATE,
    INEXACT,
    NEAREST_NUMBER,
    ON_CELL,
    PROOF_FILE,
    ROWS,
    SEARCHED,
    SECOND_MOMENT,
    decayed_name,
)
from guarded_moments.proofs.cleared import row, searched
from guarded_moments.proofs.cover import cut, path_name, paths
from guarded_moments.proofs.decay import entering_and_kept, forms
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.amsgrad import FirstUpdateWithAmsgrad
from guarded_moments.proofs.derive.cell_by_ends import derive_by_ends
from guarded_moments.proofs.derive.cell_by_slopes import derive_by_slopes
from guarded_moments.proofs.derive.cell_deviation import derive_cell_deviation, derive_family_deviation
from guarded_moments.proofs.derive.cell_evaluation import derive_evaluated_by_ends, derive_evaluated_by_slopes
from guarded_moments.proofs.derive.cell_value import derive_evaluated_at_gradient
from guarded_moments.proofs.derive.cleared import derive_cleared, derive_row, derive_searched
from guarded_moments.proofs.derive.context import Prover
from guarded_moments.proofs.derive.cover import derive_cut
from guarded_moments.proofs.derive.deviation_bound import derive_evaluation
from guarded_moments.proofs.derive.every_update import derive_every
from guarded_moments.proofs.derive.first_update import FirstUpdate
from guarded_moments.proofs.derive.inexact import derive_inexact
from guarded_moments.proofs.derive.nearest import derive_nearest, derive_second_moment_sign
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import COMPARED, evaluation
from guarded_moments.proofs.later import every, inexact
from guarded_moments.proofs.nearest import NEAREST
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.statement import Statement, families, statement
from guarded_moments.reference.guard.constants import GuardConstants


def derive() -> str:
    """Derive every claim.

    Returns:
        The content of the proof file.
    """
    tools = Toolbox(Prover())
    for name in tools.lemmas.all:
        tools.lemmas(name)
    recording = tools.prover.recording
    for kind in NEAREST:
        recording.name(f"{NEAREST_NUMBER}{kind}", derive_nearest(tools, kind))
    evaluated = evaluation()
    (compared,) = derive_evaluation(tools, evaluated)
    recording.name(EVALUATION, [compared])
    recording.name(CELL_BY_ENDS, derive_by_ends(tools, cell_by_ends()))
    recording.name(CELL_BY_SLOPES, derive_by_slopes(tools, cell_by_slopes()))
    evaluated_cell = derive_evaluated_by_ends(tools, evaluated_by_ends())
    recording.name(EVALUATED_BY_ENDS, evaluated_cell)
    recording.name(EVALUATED_BY_SLOPES, derive_evaluated_by_slopes(tools, evaluated_by_slopes()))
    recording.name(EVALUATED_AT_GRADIENT, derive_evaluated_at_gradient(tools, evaluated_at_gradient()))
    print("derived the bounds of a cell", file=sys.stderr)  # noqa: T201 - progress of a script
    search = searched()
    dropped = derive_searched(tools, search, evaluated_cell)
    recording.name(SEARCHED, dropped)
    for name, cells in ROWS.items():
        recording.name(name, derive_row(tools, row(search, cells), dropped))
    for path in paths():
        recording.name(f"{CUT}{path_name(path)}", derive_cut(tools, cut(path)))
    on_cell = cell_deviation()
    deviation = derive_cell_deviation(tools, on_cell)
    recording.name(CELL_DEVIATION, deviation)
    recording.name(EVERY, derive_every(tools, every()))
    theorem = FirstUpdate(tools)
    for family in families():
        stated = statement(family)
        shown = theorem.derive(stated)
        recording.name(f"{FIRST_UPDATE}{family.name}", shown)
        recording.name(f"{SECOND_MOMENT}{family.name}", derive_second_moment_sign(tools, stated))
        whole = _accepted(tools, stated, shown, compared)
        recording.name(f"{ACCEPTED}{family.name}", whole)
        dropped_of = derive_cleared(tools, theorem, stated, search, dropped)
        recording.name(f"{CLEARED}{family.name}", dropped_of)
        recording.name(f"{INEXACT}{family.name}", _from_inexact_moments(tools, statement(family)))
        apart_on_cell = derive_family_deviation(tools, theorem, stated, on_cell, deviation)
        recording.name(f"{ON_CELL}{family.name}", apart_on_cell)
        for form in forms(family):
            entering, _ = entering_and_kept(family, form, Definitions("decay_"))
            for kind, proved in ((ACCEPTED, whole), (CLEARED, dropped_of), (ON_CELL, apart_on_cell)):
                at_entering = [recording.instantiate(one, {"g": entering}) for one in proved]
                recording.name(decayed_name(kind, form, family), at_entering)
        print(f"derived {family.name}", file=sys.stderr)  # noqa: T201 - progress of a script
    with_amsgrad = FirstUpdateWithAmsgrad(tools)
    for family in families(amsgrad=True):
        stated = statement(family)
        shown = with_amsgrad.derive(stated)
        recording.name(f"{FIRST_UPDATE}{family.name}", shown)
        whole = _accepted(tools, stated, shown, compared)
        recording.name(f"{ACCEPTED}{family.name}", whole)
        for form in forms(family):
            entering, _ = entering_and_kept(family, form, Definitions("decay_"))
            at_entering = [recording.instantiate(one, {"g": entering}) for one in whole]
            recording.name(decayed_name(ACCEPTED, form, family), at_entering)
        print(f"derived {family.name}", file=sys.stderr)  # noqa: T201 - progress of a script
    return tools.prover.recording.text()


def _from_inexact_moments(tools: Toolbox, stated: Statement) -> list[Proved]:
    """One later update; the statement is its own, since its symbols are added to those of the first."""
    return derive_inexact(tools, stated, inexact(stated))


def _accepted(tools: Toolbox, stated: Statement, shown: Sequence[Proved], compared: Proved) -> list[Proved]:
    """The bound over the reals and its evaluation in binary64, put together."""
    recording, (transitive,) = tools.prover.recording, tools.transitive
    constants = {name: getattr(stated.constants, name) for name in GuardConstants._fields}
    of_family = recording.instantiate(compared, constants)
    whole, apart = [], stated.recovered.update - stated.native.update
    for one, difference in zip(shown, (apart, -apart), strict=True):
        chain = recording.instantiate(transitive, {"x": difference, "y": stated.bound, "z": COMPARED})
        whole.append(recording.cut(of_family, recording.cut(one, chain)))
    return whole


if __name__ == "__main__":
    target = Path(__file__).parents[1] / PROOF_FILE
    target.parent.mkdir(exist_ok=True)
    target.write_text(derive(), encoding="utf-8")
    print(f"wrote {target}")  # noqa: T201 - the result of a script
