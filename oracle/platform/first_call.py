"""Whether a process's very first `torch.sqrt`, asked for by several threads at once, gives the roots of later calls.

MKL's vector mathematics chooses its kernel in the first call.  When two threads make that call together, one of them
now and then runs another kernel, thousands of units in the last place off, for that call alone
(github.com/pytorch/pytorch/issues/188792).  It concerns this project more than most: the claim is about the first
update after recovery, and that is often a process's first square root.  Importing this package settles the choice on
one thread (`reference.platform`), so the processes here are ones that do not import it.

Claimed: the counts.  Not claimed: that what was not seen cannot happen; it is a race.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import torch

from guarded_moments.oracle.platform.root_sweep import fingerprint_of
from guarded_moments.reference.errors import PlatformError

_FIRST, _NUMBER = 0x3F800000, 1 << 17  #: bits of the first radicand, and how many; several threads share them

#: Forks children that have made no call yet; those of the second half settle the choice first, on one thread.  Each
#: prints how many roots of its first large call differ from those of the second, by how much, and the latter's digest.
_CHILDREN = f"""
import hashlib, os, sys
import torch
children = int(sys.argv[1])
torch.set_num_threads(1)
x = torch.arange({_FIRST}, {_FIRST + _NUMBER}, dtype=torch.int32).view(torch.float32)
for number in range(2 * children):
    child = os.fork()
    if not child:
        torch.set_num_threads(2)
        if number >= children:
            torch.ones(1).sqrt()
        first, second = x.sqrt(), x.sqrt()
        distance = (first.view(torch.int32) - second.view(torch.int32)).abs()
        digest = hashlib.sha256(second.numpy().astype("<f4", copy=False).data).hexdigest()
        print(int((distance != 0).sum()), int(distance.max()), digest, flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("a process that takes square roots failed")
"""


@dataclass(frozen=True)
class FirstCalls:
    """What new processes computed."""

    processes: int  #: whose first root was asked for by two threads at once
    differing: int  #: of these, in how many it was another than later
    farthest: int  #: how far such a root was off, in units in the last place
    settled_processes: int  #: that asked for one root on one thread before
    settled_differing: int


def first_calls(processes: int) -> FirstCalls:
    """Start that many processes of each kind.

    Raises:
        PlatformError: a process fails, or does not compute this one's roots even later.
    """
    found = _children(processes)
    raw, settled = found[:processes], found[processes:]
    return FirstCalls(
        processes=len(raw),
        differing=sum(count > 0 for count, _ in raw),
        farthest=max((distance for _, distance in raw), default=0),
        settled_processes=len(settled),
        settled_differing=sum(count > 0 for count, _ in settled),
    )


def _children(number: int) -> list[tuple[int, int]]:
    """For each process of both kinds: how many roots of its first call differ, and by how many units at most."""
    if number == 0:
        return []
    command = [sys.executable, "-c", _CHILDREN, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    lines = [line.split() for line in done.stdout.splitlines()]
    values = torch.arange(_FIRST, _FIRST + _NUMBER, dtype=torch.int32).view(torch.float32)
    here = fingerprint_of(values.sqrt())
    if done.returncode != 0 or len(lines) != 2 * number:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise PlatformError(f"new processes could not take a square root: {last[0]}")
    if any(digest != here for _, _, digest in lines):
        raise PlatformError("another process on this machine computes other square roots than this one")
    return [(int(count), int(distance)) for count, distance, _ in lines]
