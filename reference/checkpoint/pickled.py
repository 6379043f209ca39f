"""Parts of a checkpoint as compressed bytes: `torch.save` through zlib, and back through a safe load.

Claimed: `unpack` gives what `pack` was given to the bit, allocates no more than the stated size, and executes nothing.
Trusted: zlib, and `torch.load(weights_only=True)`.
"""

from __future__ import annotations

import io
import pickle
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.storages import storage_in
from guarded_moments.reference.errors import CheckpointError, FormatError

_BLOCK = 1 << 20  #: bytes at a time
#: Bytes above which a part is compressed fast rather than hard: gigabytes of weights hardly shrink.
_LARGE = 1 << 20


class Packed(NamedTuple):
    """A part of a checkpoint, packed."""

    packed: Tensor  #: uint8
    size: int  #: bytes of what `torch.save` wrote


def pack(part: object, spool: Spool) -> Packed:
    """Pickle and compress, once a safe load has been seen to read it again.

    Raises:
        CheckpointError: it holds something that only unsafe loading could restore.
    """
    with _file(spool) as pickled, _file(spool) as packed:
        try:
            torch.save(part, pickled)
            size = pickled.tell()
            pickled.seek(0)
            torch.load(pickled, map_location="meta", weights_only=True)
        except Exception as error:  # noqa: BLE001 - objects of any class may refuse in any way
            cause = " ".join(str(error).split())[:200]
            msg = (
                f"the checkpoint holds more than tensors and plain values, and could not be read again safely ({cause})"
            )
            raise CheckpointError(msg) from None
        pickled.seek(0)
        zipper = zlib.compressobj(9 if size < _LARGE else 1)
        while block := pickled.read(_BLOCK):
            packed.write(zipper.compress(block))
        packed.write(zipper.flush())
        content = spool.empty(packed.tell(), torch.uint8)
        packed.seek(0)
        packed.readinto(content.numpy().data)  # type: ignore[attr-defined]  # files have it
    return Packed(content, size)


def unpack(packed: Tensor, size: int, name: str, spool: Spool) -> object:
    """What was packed.

    Raises:
        FormatError: it has not the stated size, no safe load reads it, or it holds a storage; also zlib.error.
    """
    mapped = size > spool.memory
    with spool.file() if mapped else io.BytesIO() as pickled:
        for block in _unzipped(packed, size + 1):
            pickled.write(block)
        if pickled.tell() != size:
            msg = f"its {name} has not the {size} bytes that are stated"
            raise FormatError(msg)
        pickled.seek(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about pickles that torch did not write, which it reads or refuses
                if mapped:
                    pickled.flush()
                    part: object = torch.load(pickled.name, map_location="cpu", weights_only=True, mmap=True)
                else:
                    part = torch.load(pickled, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            msg = f"its {name} holds objects that only unsafe loading could restore"
            raise FormatError(msg) from None
        except Exception as error:  # noqa: BLE001 - of a crafted pickle the unpickler fails in any way it likes
            cause = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            msg = f"its {name} is not what torch.save writes ({cause})"
            raise FormatError(msg) from None
    if (place := storage_in(part)) is not None:
        msg = f"its {name} holds a storage ({place or 'nothing else'}), which `compress` refuses"
        raise FormatError(msg)
    return part


def unzip(packed: Tensor, most: int, name: str) -> bytes:
    """What zlib unpacks, if that is no more than so many bytes.

    Raises:
        FormatError: it is more; also zlib.error.
    """
    content = b"".join(_unzipped(packed, most + 1))
    if len(content) > most:
        msg = f"its {name} takes more than {most} bytes"
        raise FormatError(msg)
    return content


def _unzipped(packed: Tensor, most: int) -> Iterator[bytes]:
    """What zlib unpacks, in blocks, at most so many bytes."""
    unzipper, data, begin = zlib.decompressobj(), packed.numpy().data, 0
    tail = b""
    while most > 0 and not unzipper.eof and (tail or begin < len(data)):
        if not tail:  # small pieces: zlib copies what it leaves
            tail, begin = bytes(data[begin : begin + _BLOCK]), begin + _BLOCK
        block = unzipper.decompress(tail, min(most, _BLOCK))
        tail = unzipper.unconsumed_tail
        most -= len(block)
        yield block
    if most > 0 and not unzipper.eof:
        raise zlib.error("ends too early")


def _file(spool: Spool) -> IO[bytes]:
    """Memory as a file while it is small, else a file."""
    folder = None if spool.folder is None else str(spool.folder)
    return tempfile.SpooledTemporaryFile(max_size=spool.memory, dir=folder)
