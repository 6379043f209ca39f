"""All requirements, in the order of their chapters."""

from __future__ import annotations

from guarded_moments.oracle.conformance import decode, encode, escapes, guard, operations, recovery
from guarded_moments.oracle.conformance.requirements import Requirement

#: The first set.  Later ones are added; an identifier never changes its meaning.
REQUIREMENTS: tuple[Requirement, ...] = (
    *operations.REQUIREMENTS,
    *decode.REQUIREMENTS,
    *encode.REQUIREMENTS,
    *guard.REQUIREMENTS,
    *escapes.REQUIREMENTS,
    *recovery.REQUIREMENTS,
)


def requirement(identifier: str) -> Requirement:
    """The requirement of that identifier.

    Raises:
        KeyError: there is none.
    """
    return {known.identifier: known for known in REQUIREMENTS}[identifier]
