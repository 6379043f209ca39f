"""One requirement, judged on one backend: what came of it, for every reporter alike.

Claimed: `HOLDS` means that the check ran to its end, on as many fresh inputs as the budget allowed, and found nothing.
Whatever was not tried has a status of its own, and none of those is a pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from guarded_moments.oracle.conformance.adapting import Adapted
from guarded_moments.oracle.conformance.findings import NonConformance, NotJudged, Undecided
from guarded_moments.oracle.conformance.requirements import Requirement, Trial


class Status(Enum):
    """What is known of a requirement after its check."""

    HOLDS = "holds"  #: on every input that was tried
    FAILS = "fails"  #: with a counterexample
    UNDECIDED = "undecided"  #: no answer: counts as a failure
    NOT_JUDGED = "not judged"  #: this machine cannot try it
    NOT_CLAIMED = "not claimed"  #: the backend says that it does not do this


@dataclass(frozen=True)
class Judgement:
    """The outcome of one check."""

    requirement: Requirement
    status: Status
    text: str = ""  #: the counterexample, or the reason
    rounds: int = 0  #: how often the check ran to its end, each time on fresh inputs
    seconds: float = 0.0
    expected: str | None = None  #: why the backend's authors expect this requirement to fail

    @property
    def stale(self) -> bool:
        """Whether a failure was expected of what holds."""
        return self.expected is not None and self.status is Status.HOLDS

    @property
    def fails(self) -> bool:
        """Whether this must turn a run red."""
        return self.expected is None and self.status in {Status.FAILS, Status.UNDECIDED}

    def in_full(self) -> str:
        """The outcome with the requirement that it is about, for a reader who sees nothing else."""
        required = self.requirement
        headline, _, details = self.text.partition("\n")
        verdict = "undecided: " if self.status is Status.UNDECIDED else ""
        return "\n".join(
            [
                verdict + headline,
                *(f"  {line}" for line in details.splitlines()),
                "",
                f"{required.identifier}, {required.level.value}: {required.text}",
                required.why,
            ]
        )


def not_claimed(requirement: Requirement, backend: Adapted) -> str | None:
    """Why the backend is not judged by this requirement, in its own words; None if it is."""
    if requirement.identifier in backend.not_claimed:
        return backend.not_claimed[requirement.identifier]
    missing = [name for name in requirement.needs if not backend.offers(name)]
    return f"the backend has no {' and no '.join(missing)}" if missing else None


def judge(requirement: Requirement, trial: Trial, budget: float = 0.0) -> Judgement:
    """Run a check once, and again on fresh inputs until the budget is used up.

    Args:
        requirement: to judge by.
        trial: the backend and the seed of the first round.
        budget: seconds; a round that has begun is finished.

    Raises:
        Exception: whatever the backend itself raises where it should have answered.
    """
    expected = trial.backend.expected_failures.get(requirement.identifier)
    reason = not_claimed(requirement, trial.backend)
    if reason is not None:
        return Judgement(requirement, Status.NOT_CLAIMED, reason, expected=expected)
    begin, rounds = time.monotonic(), 0
    status, text = Status.HOLDS, ""
    try:
        while rounds == 0 or time.monotonic() - begin < budget:
            requirement.judge(trial if rounds == 0 else replace(trial, seed=f"{trial.seed}.{rounds}"))
            rounds += 1
    except NonConformance as finding:
        status, text = Status.FAILS, str(finding)
    except Undecided as reason_for_none:
        status, text = Status.UNDECIDED, str(reason_for_none)
    except NotJudged as reason_for_none:
        status, text = Status.NOT_JUDGED, str(reason_for_none)
    return Judgement(requirement, status, text, rounds, time.monotonic() - begin, expected)


def as_json(judgement: Judgement) -> dict[str, Any]:
    """The outcome for a report: plain values."""
    required = judgement.requirement
    return {
        "requirement": required.identifier,
        "level": required.level.value,
        "text": required.text,
        "status": judgement.status.value,
        "expected_failure": judgement.expected,
        "rounds": judgement.rounds,
        "seconds": round(judgement.seconds, 3),
        "finding": judgement.text or None,
    }
