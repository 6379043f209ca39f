"""What the op models assume of this machine, checked on it: its square root, and the five binary32 operations."""

from guarded_moments.oracle.platform.arithmetic_evidence import ArithmeticEvidence, arithmetic_evidence
from guarded_moments.oracle.platform.certificate import Certificate, certificate_path, keep, platform_certificate
from guarded_moments.oracle.platform.machine import Machine, this_machine
from guarded_moments.oracle.platform.root import RootEvidence, certify_root

__all__ = [
    "ArithmeticEvidence",
    "Certificate",
    "Machine",
    "RootEvidence",
    "arithmetic_evidence",
    "certificate_path",
    "certify_root",
    "keep",
    "platform_certificate",
    "this_machine",
]
