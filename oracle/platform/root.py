"""The platform's square root, certified: what op models with `SquareRoot.PLATFORM` assume of `torch.sqrt` on CPU.

They assume that it is within one unit in the last place of the correctly rounded root, and monotone.  Its error is
reported against both roots, which differ in what they allow: within one unit of the *exact* root the relative error is
at most two unit roundoffs, within one unit of the *correctly rounded* root it is at most three.

Claimed: `RootEvidence.certified` only where every input without a sign ran.  Not claimed: a process's first call, when
several threads make it (`first_call`); how often that was wrong is shown beside.  Trusted: `root_sweep`, and that
places which were not tried answer as those that were (`root_placement`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import torch

from guarded_moments.oracle.platform.exact_root import nearest_root, root_error
from guarded_moments.oracle.platform.first_call import FirstCalls, first_calls
from guarded_moments.oracle.platform.root_placement import Placement, placement
from guarded_moments.oracle.platform.root_sweep import (
    INFINITY,
    MARGIN,
    Beyond,
    Progress,
    Root,
    Sweep,
    complete_blocks,
    fingerprint_of,
    quick_blocks,
    sweep,
    wrong_beyond_finite,
)
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: What the guard's slack allows: relative error in unit roundoffs, from one unit in the last place.
ALLOWED = 3.0
ALL = "all 2,147,483,648 inputs without a sign"
QUICK = "a quick look, which certifies nothing: every 64th block of 65,536 inputs, and all of [1, 4)"

_EXACT_SAMPLE = 20_000  #: inputs whose correctly rounded root is found by integers, too
_NEW_PROCESSES = 100  #: of each kind, see `first_call`
_SPOT_STEP = 16_381  #: a prime: inputs of the spot fingerprint lie in every binade, with all endings
_SEED = 1


@dataclass(frozen=True)
class RootEvidence:
    """What was seen of a square root, on which inputs."""

    scope: str  #: `ALL` or `QUICK`
    complete: bool  #: every input without a sign ran
    finite: Sweep
    beyond: Beyond
    exact_inputs: int  #: inputs whose root was also found by integers
    exact_wrong: int  #: of these, how often the correctly rounded root of the sweep was another
    error_confirmed: bool  #: integers give the largest error at its input, too
    placement: Placement
    first_calls: FirstCalls
    spot: str  #: SHA-256 of some roots, to recognise the same square root in a moment
    seconds: float
    date: str

    @property
    def off(self) -> int:
        """Finite inputs whose root is not the correctly rounded one."""
        return self.finite.below + self.finite.above

    @property
    def within_one(self) -> bool:
        """Within one unit in the last place of the correctly rounded root, on what ran."""
        return self.finite.farthest <= 1 and self.finite.relative <= ALLOWED

    @property
    def problems(self) -> list[str]:
        """What speaks against the root, on what ran; empty if nothing does."""
        finite, beyond, place = self.finite, self.beyond, self.placement
        wrong = {
            "the largest distance from the correctly rounded root is more than one unit": not self.within_one,
            f"it falls {finite.falls:,} times": finite.falls,
            f"infinity, NaN, minus zero or negative inputs are answered wrongly: {beyond}": any(beyond[:-1]),
            f"{place.differing:,} roots depend on their place, first at {place.first_difference}": place.differing,
            "a first call on one thread does not settle the library's choice": self.first_calls.settled_differing,
            f"NumPy's root is not correctly rounded {finite.numpy_off:,} times": finite.numpy_off,
            f"the reference's own root is not correctly rounded {finite.own_off:,} times": finite.own_off,
            "integers find another root or another error than this check": self.exact_wrong or not self.error_confirmed,
        }
        return [problem for problem, found in wrong.items() if found]

    @property
    def certified(self) -> bool:
        """Whether op models may call it: every input ran, and all that they assume was seen to hold."""
        return self.complete and not self.problems

    def sentence(self) -> str:
        """In one line, for reports."""
        finite, first = self.finite, self.first_calls
        race = f"; the FIRST call was wrong in {first.differing} of {first.processes} new processes, if on two threads"
        return (
            f"torch.sqrt on {self.scope}: {'certified' if self.certified else 'NOT certified'}; "
            f"{finite.farthest} ulp at most from the correctly rounded root, off on {self.off:,} of "
            f"{finite.inputs:,} finite inputs, {finite.error:.4f} ulp at most from the exact root, "
            f"{'monotone' if not finite.falls else 'NOT monotone'}{race if first.differing else ''}"
        )


def certify_root(*, quick: bool = False, progress: Progress | None = None) -> RootEvidence:
    """Run every input through `torch.sqrt`, or a stated part, and check by samples what cannot be swept.

    Args:
        quick: only the inputs of `QUICK`.
        progress: called with inputs done and in all.

    Raises:
        PlatformError: this process flushes subnormals.
    """
    blocks = quick_blocks() if quick else complete_blocks()
    return examine(torch.sqrt, blocks, processes=0 if quick else _NEW_PROCESSES, progress=progress)


def examine(root: Root, blocks: list[int], *, processes: int, progress: Progress | None = None) -> RootEvidence:
    """As `certify_root`, for any square root and any blocks; that many new processes of each kind are started.

    Raises:
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    started, rng = time.perf_counter(), np.random.default_rng(_SEED)
    complete = blocks == complete_blocks()
    with one_torch_thread():
        finite = sweep(root, blocks, progress)
        beyond = wrong_beyond_finite(root, rng)
        spot = spot_fingerprint(root)
    return RootEvidence(
        scope=ALL if complete else QUICK,
        complete=complete,
        finite=finite,
        beyond=beyond,
        exact_inputs=_EXACT_SAMPLE,
        exact_wrong=_exact_wrong(rng),
        error_confirmed=_confirmed(root, finite),
        placement=placement(root, rng),
        first_calls=first_calls(processes),
        spot=spot,
        seconds=time.perf_counter() - started,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def spot_fingerprint(root: Root = torch.sqrt) -> str:
    """SHA-256 of some 130,000 roots of all magnitudes: another square root has another, but for a few."""
    bits = np.arange(1, INFINITY, _SPOT_STEP, dtype=np.uint32)
    return fingerprint_of(root(torch.from_numpy(bits.view(np.float32))))


def _exact_wrong(rng: np.random.Generator) -> int:
    """On how many inputs of a sample integers find another correctly rounded root than NumPy, or than binary64."""
    bits = rng.integers(1, INFINITY, size=_EXACT_SAMPLE, dtype=np.uint32)
    values = bits.view(np.float32)
    by_numpy = NumpyBinary32().sqrt(values).view(np.uint32).tolist()
    through_binary64 = np.sqrt(values.astype(np.float64)).astype(np.float32).view(np.uint32).tolist()
    exact = [nearest_root(x) for x in bits.tolist()]
    return sum(not a == b == c for a, b, c in zip(exact, by_numpy, through_binary64, strict=True))


def _confirmed(root: Root, finite: Sweep) -> bool:
    """Whether integers find the largest error where the sweep found it, within the margin of its measurement."""
    value = torch.tensor([finite.error_at], dtype=torch.int32).view(torch.float32)
    candidate = int(root(value).view(torch.int32))
    if not 0 <= candidate < INFINITY:
        return False
    low, high = root_error(finite.error_at, candidate)
    measured, margin = Fraction(finite.error) - Fraction(MARGIN), Fraction(MARGIN)
    return low - margin <= measured <= high + margin
