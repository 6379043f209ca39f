"""Writing a checkpoint that was recovered: `torch.save`, whole or not at all, and compared with what was to be written.

Claimed: when `save_checkpoint` returns, a safe load of the file gives the checkpoint, bit for bit.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import IO, Any

import torch

from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.spool import MEMORY
from guarded_moments.reference.checkpoint.writing import drop_from_cache, replacing
from guarded_moments.reference.errors import CheckpointError


def save_checkpoint(checkpoint: dict[str, Any], path: Path, *, overwrite: bool = False, memory: int = MEMORY) -> None:
    """Write a checkpoint as `torch.save` does; tensor by tensor, if it is larger than `memory`.

    Raises:
        CheckpointError: the file exists and `overwrite` is false, cannot be written, or did not read back as written.
    """

    def check(partial: Path) -> None:
        drop_from_cache(partial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickles, which this is not
            mapped = partial.stat().st_size > memory
            try:
                again: Any = torch.load(partial, map_location="cpu", weights_only=True, mmap=mapped or None)
                difference = first_difference(checkpoint, again)
            except Exception as error:  # noqa: BLE001 - an unpickler fails in any way it likes
                difference = (str(error).splitlines() or [type(error).__name__])[0]
        if difference is not None:
            msg = f"{path}: what was written was not read back ({difference}): the device or its file system is faulty"
            raise CheckpointError(msg)

    with replacing(path, overwrite=overwrite, check=check) as partial, partial.open("wb") as file:
        writer = _Writer(file)
        try:
            torch.save(checkpoint, writer)  # type: ignore[arg-type]  # it needs `write` and no more
        except Exception:
            if writer.error is not None:  # torch reports a failed write in ways of its own
                raise writer.error from None
            raise


class _Writer(io.RawIOBase):
    """A file that remembers why it could not be written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        """Write all of it, or nothing more after the first failure."""
        size = memoryview(data).nbytes
        try:
            if self.error is None:
                self._file.write(data)
        except OSError as error:
            self.error = error
        return size
