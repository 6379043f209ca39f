"""What this process must be able to compute before anything is claimed about its bits.

Flush-to-zero is a setting of each thread; a worker thread inherits it when it is created.  So the check runs an
operation large enough to be split over all of torch's threads, and one in NumPy on the calling thread.

The vector library behind `torch.sqrt` (MKL 2024.2) chooses its kernel in the first call.  When that call comes from
several threads at once, some of them now and then run another one, and a share of the tensor is wrong by thousands of
units in the last place, that once (github.com/pytorch/pytorch/issues/188792; seen here in 6 new processes of 2,100).
So this package makes the first call itself, on one thread, when it is imported; a process that resumes training and
does not import it should do the same, `torch.ones(1).sqrt()`, before its first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from guarded_moments.reference.errors import PlatformError

_SMALLEST_NORMAL = 2.0**-126
#: Elements below which torch gives no further thread a share of a tensor.
_SHARE_OF_A_THREAD = 1 << 15


def settle_square_root() -> None:
    """Have the vector library choose the kernel of `torch.sqrt` while only this thread asks."""
    torch.ones(1).sqrt()


settle_square_root()


def require_subnormals() -> None:
    """Refuse to go on where subnormal results are flushed to zero.

    Raises:
        PlatformError: some thread flushes; the op models and so the claim would not hold.
    """
    enough = 2 * torch.get_num_threads() * _SHARE_OF_A_THREAD
    flushed = bool((torch.full((enough,), _SMALLEST_NORMAL) * 0.5 == 0).any())
    with np.errstate(under="ignore"):
        flushed = flushed or bool(np.float32(_SMALLEST_NORMAL) * np.float32(0.5) == 0)
    if flushed:
        msg = (
            "flush-to-zero is switched on in this process: subnormal numbers become zero, and the claim is not about "
            "such arithmetic; call torch.set_flush_denormal(False) before anything else, or start a new process"
        )
        raise PlatformError(msg)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch operations on the calling thread only, and restore the number of threads afterwards.

    Work on blocks that fit a cache is too small to share: the threads would spend their time waiting for each other,
    and on a busy machine all of it.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
