"""The guard: which coordinates keep the claim, decided in binary64 with every rounding accounted for."""

from guarded_moments.reference.guard.claim_constants import guard_constants
from guarded_moments.reference.guard.closed_form import closed_form_deviation, closed_form_guard, in_domain
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.exact import exact_guard
from guarded_moments.reference.guard.slack import RoundingSlack, rounding_slack

__all__ = [
    "GuardConstants",
    "RoundingSlack",
    "closed_form_deviation",
    "closed_form_guard",
    "exact_guard",
    "guard_constants",
    "in_domain",
    "rounding_slack",
]
