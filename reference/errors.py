"""What can go wrong, in one line that says what is wrong, where, and what to do.

Every error a user can cause derives from `GuardedMomentsError`; the command line prints its text and exits
with status 2.  Anything else that escapes is a fault of ours and keeps its traceback.
"""

from __future__ import annotations


class GuardedMomentsError(Exception):
    """Base of every error caused by input, not by a fault of this package."""


class InvalidClaimError(GuardedMomentsError):
    """A tolerance, gradient bound or horizon that makes no claim."""


class CheckpointError(GuardedMomentsError):
    """A checkpoint that cannot be read, is not Adam's, or is inconsistent."""


class FormatError(GuardedMomentsError):
    """A `.gmc` file that is damaged, foreign, or written by a newer version."""


class UnsupportedError(GuardedMomentsError):
    """Something valid that this version does not handle; the message names it."""


class PlatformError(GuardedMomentsError):
    """The machine computes differently from what the op models assume (flush-to-zero, unknown kernels)."""
