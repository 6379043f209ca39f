"""The conformance kit: numbered requirements on codec backends, and the checks that judge them."""

from guarded_moments.oracle.conformance.backend import Backend, Codes, Grids, Moments, ReferenceBackend
from guarded_moments.oracle.conformance.catalogue import REQUIREMENTS, requirement
from guarded_moments.oracle.conformance.requirements import (
    Level,
    NonConformance,
    NotJudged,
    Requirement,
    Trial,
    Undecided,
)

__all__ = [
    "REQUIREMENTS",
    "Backend",
    "Codes",
    "Grids",
    "Level",
    "Moments",
    "NonConformance",
    "NotJudged",
    "ReferenceBackend",
    "Requirement",
    "Trial",
    "Undecided",
    "requirement",
]
