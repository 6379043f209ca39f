"""A backend judged outside pytest: one line a requirement, each failure in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from guarded_moments.oracle.conformance.document import in_order
from guarded_moments.oracle.conformance.judgement import Judgement, Status, judge
from guarded_moments.oracle.conformance.requirements import Level, Trial


def judge_all(
    trial: Trial,
    say: Callable[[str], object],
    *,
    only: Sequence[str] = (),
    level: Level = Level.REPRODUCIBLE,
    budget: float = 0.0,
) -> list[Judgement]:
    """Judge by every requirement of the level, or by those named, and say what comes of each as it comes.

    Args:
        trial: the backend and the seed.
        say: takes lines.
        only: identifiers, or beginnings of some, such as `GRD`.
        level: `SOUND` leaves out what only concerns the reference's own codes.
        budget: seconds a requirement.
    """
    found = []
    for required in in_order():
        if only and not required.identifier.startswith(tuple(only)):
            continue
        if level is Level.SOUND and required.level is not Level.SOUND:
            continue
        judgement = judge(required, trial, budget)
        found.append(judgement)
        reason = f": {judgement.text}" if judgement.status in {Status.NOT_CLAIMED, Status.NOT_JUDGED} else ""
        say(f"{required.identifier:6}  {judgement.status.value}{reason}")
        if judgement.fails:
            for line in judgement.in_full().splitlines():
                say(f"        {line}".rstrip())
    return found
