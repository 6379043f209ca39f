"""Folders of torch.distributed.checkpoint to folders of `.gmc` files and back, one file at a time.

    native        .metadata  __0_0.distcp      __1_0.distcp
    compressed    .metadata  __0_0.distcp.gmc  __1_0.distcp.gmc

Files do not need each other, so several processes may each take some (`rank` of `ranks`); the folder grows under the
name `NAME.partial` and takes its place, with `.metadata`, when all of them are there.

Claimed: a folder under its final name is whole; an existing one is never replaced; a shard of another checkpoint is
refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from guarded_moments.reference.checkpoint.distributed.metadata import NAME, Metadata, read_metadata
from guarded_moments.reference.checkpoint.distributed.shards import Folder, filled
from guarded_moments.reference.checkpoint.file_format import read, write
from guarded_moments.reference.checkpoint.guarded import Kernels, compress, recover
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.checkpoint.writing import write_bytes
from guarded_moments.reference.errors import CheckpointError, FormatError, GuardedMomentsError

_SUFFIX = ".gmc"


class Shard(NamedTuple):
    """One file of a folder, compressed."""

    file: str  #: its name in the native folder
    path: Path  #: of the `.gmc` file
    state: GuardedState


def compress_shards(native: Folder, output: Path, *, rank: int = 0, ranks: int = 1, **choices: Any) -> Iterator[Shard]:  # noqa: ANN401 - of `compress`
    """Compress this rank's share of a folder's files, one after the other; `finish_compressed` then makes it whole.

    Args:
        native: the folder.
        output: the compressed folder to be.
        rank: of this process.
        ranks: processes that share the work.
        choices: as `compress` takes them, `tolerance` and `grad_bound` at least.

    Raises:
        CheckpointError: the output exists or cannot be written, or a file is damaged.
        GuardedMomentsError: as `compress`.
    """
    partial = _growing(output)
    for file in native.files[rank::ranks]:
        shard = native.shard(file)
        try:
            state = compress(shard, **choices)
        except GuardedMomentsError as error:
            raise type(error)(f"{native.path / file}: {error}") from None
        path = partial / f"{file}{_SUFFIX}"
        write(state, path, overwrite=True)
        yield Shard(file, path, state)


def finish_compressed(native: Folder, output: Path) -> None:
    """Give a compressed folder its `.metadata` and its name, once every file has been seen to be there and whole.

    Raises:
        CheckpointError, FormatError: one is missing, damaged, or of another checkpoint.
    """
    partial = _growing(output)
    for _ in _shards(partial, native.metadata):
        pass
    _finish(native.path, partial, output)


def is_compressed_folder(path: Path) -> bool:
    """Whether it looks like a folder of `.gmc` files."""
    return path.is_dir() and (path / NAME).is_file() and any(path.glob(f"*{_SUFFIX}"))


def shards_of(compressed: Path) -> Iterator[Shard]:
    """Read the files of a compressed folder, one after the other.

    Raises:
        CheckpointError, FormatError: one is missing, damaged, or of another checkpoint.
    """
    return _shards(compressed, read_metadata(compressed, with_files=False))


def recover_folder(compressed: Path, output: Path, kernels: Kernels = "auto") -> Iterator[Shard]:
    """Recover a folder that `torch.distributed.checkpoint.load` reads, on any number of ranks; gives each file done.

    Raises:
        CheckpointError, FormatError: the compressed folder is not whole, or the output exists or cannot be written.
    """
    partial = _growing(output)
    metadata = read_metadata(compressed, with_files=False)

    @lru_cache(maxsize=2)  # a file's own, and one that has moments of it
    def recovered(owner: str) -> dict[str, Any]:
        return recover(_read(compressed, owner, metadata).state, kernels=kernels)

    def moment_of(owner: str, optimizer: str, key: str, name: str) -> Tensor:
        try:
            moment: Tensor = recovered(owner)["optimizers"][optimizer]["state"][key][name]
        except (LookupError, TypeError):
            msg = f"{compressed / owner}{_SUFFIX}: has no {name} of {key}"
            raise FormatError(msg) from None
        return moment

    for shard in _shards(compressed, metadata):
        content = filled(shard.state.skeleton, moment_of)
        write_bytes(partial / shard.file, content, overwrite=True)
        yield shard
    _finish(compressed, partial, output)


def _shards(compressed: Path, metadata: Metadata) -> Iterator[Shard]:
    for file in metadata.files():
        yield _read(compressed, file, metadata)


def _read(compressed: Path, file: str, metadata: Metadata) -> Shard:
    path = compressed / f"{file}{_SUFFIX}"
    state = read(path)
    stated = (state.skeleton.get("file"), state.skeleton.get("metadata_sha256"))
    if stated != (file, metadata.sha256):
        msg = f"{path}: is the file {stated[0]!r} of another checkpoint than {NAME} beside it describes"
        raise CheckpointError(msg)
    return Shard(file, path, state)


def _growing(output: Path) -> Path:
    """The folder under the name that it has until it is whole."""
    if output.exists() or output.is_symlink():
        msg = f"{output}: exists already; nothing was written (a folder is never replaced)"
        raise CheckpointError(msg)
    partial = output.with_name(f"{output.name}.partial")
    try:
        partial.mkdir(exist_ok=True)
    except OSError as error:
        msg = f"{output}: cannot be written: {error.strerror or error}"
        raise CheckpointError(msg) from None
    return partial


def _finish(source: Path, partial: Path, output: Path) -> None:
    """Bring a folder into its place; the system refuses to replace one that has appeared there meanwhile."""
    write_bytes(partial / NAME, (source / NAME).read_bytes(), overwrite=True)
    try:
        partial.rename(output)
        descriptor = os.open(output.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        msg = f"{output}: cannot be written: {error.strerror or error}"
        raise CheckpointError(msg) from None
