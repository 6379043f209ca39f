"""The files of a compressed checkpoint beside those of its native one: two files, or two folders read file by file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from guarded_moments.oracle.cli.common import is_folder
from guarded_moments.oracle.report.attestation import COMPRESSED, NATIVE
from guarded_moments.reference.checkpoint import GuardedState, load_checkpoint, read
from guarded_moments.reference.checkpoint.distributed import Folder, shards_of
from guarded_moments.reference.errors import CheckpointError

_BLOCK = 1 << 20  #: bytes read at a time


def pairs(compressed: Path, native: Path) -> Iterator[tuple[Path, GuardedState, dict[str, Any]]]:
    """The compressed files with their states and the native checkpoints they were made from, one after the other."""
    if not is_folder(compressed):
        yield compressed, read(compressed), load_checkpoint(native)
        return
    folder = Folder(native)
    for shard in shards_of(compressed):
        yield shard.path, shard.state, folder.shard(shard.file)


def files_of(compressed: Path, native: Path) -> list[tuple[str, Path]]:
    """What is read, by role: both files, or those of both folders by name."""
    found = []
    for role, path in ((COMPRESSED, compressed), (NATIVE, native)):
        inside = sorted(one for one in path.iterdir() if one.is_file()) if is_folder(path) else [path]
        found += [(role, one) for one in inside]
    return found


def described(files: Sequence[tuple[str, Path]]) -> list[dict[str, Any]]:
    """Role, name, size and SHA-256 of each.

    Raises:
        CheckpointError: one cannot be read.
    """
    return [_described(role, path) for role, path in files]


def _described(role: str, path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    return {"role": role, "name": path.name, "bytes": size, "sha256": digest.hexdigest()}
