"""Beyond the first update: the guarantee for several updates, or all, under a sequence of gradients that runs share.

    reduction      update j as a first update, exactly
    carrying       what one update does to rounding errors that the state has already
    accumulation   the rounding slack of update j
    constants      all that as constants of the guard, one set an update
    unbounded      every update at once, in exact arithmetic
    guard          which coordinates keep the claim
    afterwards     what follows about later updates, and about the sum of all, where the claim is about the first

Two claims, never mixed: a number of updates in binary32, bit for bit as the op model computes them; and every update in
exact arithmetic.  Neither is about runs that compute gradients of their own: these differ from the second update on.
"""

from guarded_moments.reference.horizon.constants import Run, later_constants
from guarded_moments.reference.horizon.guard import LaterGuard, later_guard
from guarded_moments.reference.horizon.unbounded import deviation_of_every, unbounded_constants

__all__ = [
    "LaterGuard",
    "Run",
    "deviation_of_every",
    "later_constants",
    "later_guard",
    "unbounded_constants",
]
