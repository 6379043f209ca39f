"""The audit: every coordinate of a `.gmc` file against its native checkpoint, in parts that may be decided anywhere.

    file and native checkpoint -> parts -> (any executor) -> small results -> merged in the order of the file

Claimed: the result does not depend on where or in which order parts were decided.
"""

from guarded_moments.oracle.audit.part import Part, audit_part, position_of
from guarded_moments.oracle.audit.results import Audit, Finding, PartAudit, TensorAudit, combined, reasons_of
from guarded_moments.oracle.audit.whole import audit, require_own

__all__ = [
    "Audit",
    "Finding",
    "Part",
    "PartAudit",
    "TensorAudit",
    "audit",
    "audit_part",
    "combined",
    "position_of",
    "reasons_of",
    "require_own",
]
