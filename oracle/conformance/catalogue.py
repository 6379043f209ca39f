"""All requirements, in the order of their chapters."""

from __future__ import annotations

from guarded_moments.oracle.conformance import (
    amsgrad,
    decode,
    encode,
    errors,
    escapes,
    first_step,
    forms,
    guard,
    operations,
    ratio,
    recovery,
    resumed,
    round_trips,
)
from guarded_moments.oracle.conformance.requirements import Requirement

#: An identifier never changes its meaning; new requirements get new numbers.
REQUIREMENTS: tuple[Requirement, ...] = (
    *operations.REQUIREMENTS,
    *decode.REQUIREMENTS,
    *encode.REQUIREMENTS,
    *round_trips.OF_CODES,
    *ratio.REQUIREMENTS,
    *guard.REQUIREMENTS,
    *escapes.REQUIREMENTS,
    *recovery.REQUIREMENTS,
    *resumed.REQUIREMENTS,
    *round_trips.OF_UPDATES,
    *first_step.REQUIREMENTS,
    *amsgrad.REQUIREMENTS,
    *forms.REQUIREMENTS,
    *errors.REQUIREMENTS,
)


def requirement(identifier: str) -> Requirement:
    """The requirement of that identifier.

    Raises:
        KeyError: there is none.
    """
    return {known.identifier: known for known in REQUIREMENTS}[identifier]
