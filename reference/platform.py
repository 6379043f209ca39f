"""What this process must be able to compute before anything is claimed about its bits.

Flush-to-zero is a setting of each thread; a worker thread inherits it when it is created.  So the check runs an
operation large enough to be split over torch's threads, and one in NumPy on the calling thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from guarded_moments.reference.errors import PlatformError

_SMALLEST_NORMAL = 2.0**-126
_ENOUGH_FOR_ALL_THREADS = 1 << 19


def require_subnormals() -> None:
    """Refuse to go on where subnormal results are flushed to zero.

    Raises:
        PlatformError: some thread flushes; the op models and so the claim would not hold.
    """
    flushed = bool((torch.full((_ENOUGH_FOR_ALL_THREADS,), _SMALLEST_NORMAL) * 0.5 == 0).any())
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
