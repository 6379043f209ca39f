"""The conformance kit: numbered requirements on codec backends, and the checks that judge them."""

from guarded_moments.oracle.conformance.adapting import OPERATIONS, Adapted, BackendError
from guarded_moments.oracle.conformance.backend import (
    Backend,
    Codes,
    Grids,
    Moments,
    RatioGrid,
    ReferenceBackend,
    Stepped,
)
from guarded_moments.oracle.conformance.catalogue import REQUIREMENTS, requirement
from guarded_moments.oracle.conformance.findings import NonConformance, NotJudged, Undecided
from guarded_moments.oracle.conformance.judgement import Judgement, Status, judge
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial

__all__ = [
    "OPERATIONS",
    "REQUIREMENTS",
    "Adapted",
    "Backend",
    "BackendError",
    "Codes",
    "Grids",
    "Judgement",
    "Level",
    "Moments",
    "NonConformance",
    "NotJudged",
    "RatioGrid",
    "ReferenceBackend",
    "Requirement",
    "Status",
    "Stepped",
    "Trial",
    "Undecided",
    "judge",
    "requirement",
]
