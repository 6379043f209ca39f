"""All seeded bugs, each with the requirement that must catch it."""

from tests.meta import (  # noqa: F401 - each enters its bugs
    decode_bugs,
    encode_bugs,
    errors_bugs,
    escapes_bugs,
    first_step_bugs,
    forms_bugs,
    guard_bugs,
    operations_bugs,
    ratio_bugs,
    recovery_bugs,
)
from tests.meta.seeding import KILLERS

__all__ = ["KILLERS"]
