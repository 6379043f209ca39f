"""Writing a file so that nothing is ever lost: whole or not at all, read back before it is said to be there.

    1. a partial file beside the place, locked, under a name of its own (`.gmc-*.partial`)
    2. its content, flushed to the device, dropped from the cache and read back
    3. its name: by rename where an older file may be replaced, by link where it may not, so that of two writers who
       both found nothing there one is refused
    4. the folder, flushed

Claimed: a process that dies at any moment, and a machine that loses power at any moment, leave the older file whole or
the newer one whole; a partial file that a dead writer left is removed by the next writer to that place.  Trusted: the
file system's rename, link and fsync, and that locks are released when their process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from guarded_moments.reference.errors import CheckpointError

_SUFFIX = ".partial"
_BLOCK = 1 << 20  #: bytes read at a time
_NEW_FILE = 0o666  #: what a program asks for; the user's mask takes from it


@contextmanager
def replacing(path: Path, *, overwrite: bool, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Give a partial path beside `path`, and bring it into place if the body and the check succeed; else leave nothing.

    Args:
        path: the place.
        overwrite: whether a regular file there may be replaced.
        check: called with the partial path once its content is on the device; what it raises keeps it from its place.

    Raises:
        CheckpointError: `path` exists and `overwrite` is false, or its folder cannot be written.
    """
    check_output(path, overwrite=overwrite)
    try:
        _remove_abandoned(path)
        partial, lock = _partial(path)
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        yield partial
        _flush(partial)
        if check is not None:
            check(partial)
        partial.chmod(_mode(path))
        _bring_into_place(partial, path, overwrite=overwrite)
        _flush(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        os.close(lock)


def write_bytes(path: Path, content: bytes | memoryview, *, overwrite: bool) -> None:
    """Write a file whole, and compare what the device gives back with what was to be written.

    Raises:
        CheckpointError: as `replacing`; or it did not read back as written.
    """

    def check(partial: Path) -> None:
        drop_from_cache(partial)
        if not same_bytes(partial, [memoryview(content)]):
            msg = f"{path}: what was written could not be read back: the device or its file system is faulty"
            raise CheckpointError(msg)

    with replacing(path, overwrite=overwrite, check=check) as partial:
        partial.write_bytes(content)


def check_output(path: Path, *, overwrite: bool, inputs: Sequence[Path] = ()) -> None:
    """Refuse an output that would destroy something.

    Args:
        path: to be written.
        overwrite: whether an existing regular file may be replaced.
        inputs: files that are being read, which may not.

    Raises:
        CheckpointError: it is one of the inputs, exists, or is no regular file.
    """
    try:
        if any(path.resolve() == source.resolve() for source in inputs):
            msg = f"{path}: is read as input and would be replaced; nothing was written"
            raise CheckpointError(msg)
        if path.exists() and not path.is_file():
            msg = f"{path}: exists and is no regular file; nothing was written"
            raise CheckpointError(msg)
        if path.exists() and not overwrite:
            raise _exists(path)
    except (OSError, RuntimeError) as error:  # a name too long, a loop of links
        raise _cannot_write(path, error) from None


def drop_from_cache(path: Path) -> None:
    """Ask the system to forget a file's cached content, so that what is read next comes from the device."""
    with suppress(OSError), path.open("rb") as file:  # a request: some file systems do not take it
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def same_bytes(path: Path, content: Sequence[memoryview]) -> bool:
    """Whether a file holds these bytes, in this order, and no others."""
    with path.open("rb") as file:
        return all(_next_is(file, chunk) for chunk in content) and not file.read(1)


def _next_is(file: BinaryIO, chunk: memoryview) -> bool:
    blocks = range(0, len(chunk), _BLOCK)
    return all(file.read(len(chunk[begin : begin + _BLOCK])) == chunk[begin : begin + _BLOCK] for begin in blocks)


def _exists(path: Path) -> CheckpointError:
    return CheckpointError(f"{path}: exists already; nothing was written (--force replaces it)")


def _cannot_write(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}")


def _prefix(path: Path) -> str:
    """How the names of partial files for a place begin; a name of its own might grow too long."""
    return f".gmc-{hashlib.blake2b(os.fsencode(path.name), digest_size=4).hexdigest()}-"


def _partial(path: Path) -> tuple[Path, int]:
    """A new empty file beside a place, and the descriptor that holds its lock."""
    while True:
        partial = path.with_name(f"{_prefix(path)}{secrets.token_hex(4)}{_SUFFIX}")
        lock = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # a file system without locks: its abandoned files then stay
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if partial.stat().st_ino == os.fstat(lock).st_ino:
                return partial, lock
        os.close(lock)  # another writer took it for abandoned, in the moment before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove the partial files for a place whose writers have died: their locks are free."""
    for partial in path.parent.glob(f"{_prefix(path)}*{_SUFFIX}"):
        with suppress(OSError), partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    return _NEW_FILE & ~mask


def _bring_into_place(partial: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        partial.replace(path)
        return
    try:
        os.link(partial, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without links
        check_output(path, overwrite=False)
        partial.replace(path)
