"""Memory for arrays: ordinary while they are few, and that of files once they are many.

Pages of a file can leave the memory when it is short and come back, so that a checkpoint larger than the memory passes
through tensor by tensor.  The files have no names any more when they are handed out: a process that dies leaves none.

Claimed: what is given behaves as `torch.empty`'s memory.  Trusted: `torch.from_file`, and room in the folder.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from guarded_moments.reference.errors import CheckpointError

#: Bytes that a spool takes from ordinary memory; also what it may take to pack or unpack one part of a file.
MEMORY = 1 << 30
#: What is smaller stays in memory: a mapping has a price.
_SMALL = 1 << 16


class Spool:
    """Gives memory for one job.

    Args:
        folder: for the files; the system's own for temporary files by default.
        memory: bytes to take from ordinary memory first.
    """

    def __init__(self, folder: Path | None = None, memory: int = MEMORY) -> None:
        self.folder, self.memory = folder, memory
        self._taken = 0

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        """An array of any values, shape (count,).

        Raises:
            CheckpointError: there is no room for the file.
        """
        size = count * dtype.itemsize
        if size < _SMALL or self._taken + size <= self.memory:
            self._taken += size
            return torch.empty(count, dtype=dtype)
        try:
            with self.file() as file:
                file.truncate(size)
                return torch.from_file(file.name, shared=True, size=count, dtype=dtype)
        except (OSError, RuntimeError) as error:
            msg = f"{self.folder or tempfile.gettempdir()}: no room for {size:,} bytes ({str(error).splitlines()[0]})"
            raise CheckpointError(msg) from None

    def moved(self, array: Tensor) -> Tensor:
        """The same values in memory of the spool's, if that is not ordinary memory."""
        if array.nbytes < _SMALL or self._taken + array.nbytes <= self.memory:
            self._taken += array.nbytes
            return array
        mine = self.empty(array.numel(), array.dtype).view(array.shape)
        return mine.copy_(array)

    def file(self) -> IO[bytes]:
        """A temporary file that is gone when it is closed."""
        return tempfile.NamedTemporaryFile(dir=self.folder, prefix=".gmc-", suffix=".spool")
