"""One item of a file of torch.distributed.checkpoint: a small zip file of `torch.save`, and where its numbers lie.

Claimed: `value_of` executes nothing; `payload_of` finds the bytes that are the tensor's elements, in memory order, and
every place of the item where the zip format states their CRC-32.  Trusted: `torch.load(weights_only=True)`, zipfile.
"""

from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.distributed.metadata import Item
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order, is_dense
from guarded_moments.reference.checkpoint.storages import ADVICE, storage_in
from guarded_moments.reference.errors import CheckpointError, UnsupportedError

_LOCAL_HEADER = 30  #: bytes before the name
_CRC_IN_LOCAL_HEADER, _CRC_IN_DIRECTORY, _HEADER_IN_DIRECTORY = 14, 16, 42
_HAS_DESCRIPTOR = 1 << 3  #: flag: the CRC follows the data
_DESCRIPTOR, _DIRECTORY = b"PK\x07\x08", b"PK\x01\x02"


@dataclass(frozen=True)
class Payload:
    """The bytes of a tensor's elements within an item."""

    start: int
    length: int
    checksums: tuple[int, ...]  #: where their CRC-32 stands, little-endian


def read_item(folder: Path, item: Item) -> bytes:
    """An item's bytes.

    Raises:
        CheckpointError: the file cannot be read.
    """
    try:
        with (folder / item.file).open("rb") as file:
            file.seek(item.start)
            return file.read(item.length)
    except OSError as error:
        msg = f"{folder / item.file}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None


def value_of(content: bytes, item: Item) -> object:
    """What an item holds.

    Raises:
        CheckpointError: it is damaged, needs unsafe loading, or is not the tensor that the metadata describes.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that torch did not write, which it reads or refuses
            value: object = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - damage makes the unpickler fail in any way it likes
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        msg = f"{item.file}: {item.name} cannot be read safely, or is damaged ({cause})"
        raise CheckpointError(msg) from None
    if storage_in(value) is not None:
        msg = f"{item.file}: {item.name} holds a storage, {ADVICE}"
        raise CheckpointError(msg)
    if item.sizes is not None and (not isinstance(value, Tensor) or tuple(value.shape) != item.sizes):
        msg = f"{item.file}: {item.name}{item.where} is not the tensor that the metadata describes"
        raise CheckpointError(msg)
    return value


def payload_of(content: bytes, tensor: Tensor, item: Item) -> Payload:
    """Where the elements of the tensor that an item holds lie in it.

    Raises:
        CheckpointError: the item is damaged.
        UnsupportedError: they do not lie there as one block.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            records = [info for info in archive.infolist() if info.filename.endswith("/data/0")]
            directory = archive.start_dir
    except Exception as error:  # noqa: BLE001 - torch reads some damaged archives that zipfile trips over
        msg = f"{item.file}: {item.name}{item.where} is a damaged archive ({error})"
        raise CheckpointError(msg) from None
    elements = bytes_of(tensor) if is_dense(tensor.shape, tensor.stride()) else b""
    if len(records) == 1 and records[0].compress_type == zipfile.ZIP_STORED and records[0].file_size == len(elements):
        (info,) = records
        header = content[info.header_offset : info.header_offset + _LOCAL_HEADER]
        names = int.from_bytes(header[-4:-2], "little") + int.from_bytes(header[-2:], "little")
        start = info.header_offset + _LOCAL_HEADER + names
        if content[start : start + len(elements)] == elements:
            return Payload(start, len(elements), _checksums(content, info, start, directory))
    msg = f"{item.file}: {item.name}{item.where} is stored in a way that is not supported"
    raise UnsupportedError(msg)


def bytes_of(tensor: Tensor) -> bytes:
    """The elements of a dense tensor as they lie in memory."""
    return bytes(in_memory_order(tensor).view(torch.uint8).numpy().data) if tensor.numel() else b""


def _checksums(content: bytes, info: zipfile.ZipInfo, start: int, directory: int) -> tuple[int, ...]:
    """The places of a record's CRC-32: in its header or behind its data, and in the directory."""
    places = [info.header_offset + _CRC_IN_LOCAL_HEADER]
    behind = start + info.file_size
    if info.flag_bits & _HAS_DESCRIPTOR:
        places.append(behind + len(_DESCRIPTOR) * (content[behind : behind + 4] == _DESCRIPTOR))
    entry = content.find(_DIRECTORY, directory)
    while entry >= 0:
        if _number(content, entry + _HEADER_IN_DIRECTORY) == info.header_offset:
            places.append(entry + _CRC_IN_DIRECTORY)
        entry = content.find(_DIRECTORY, entry + 1)
    stated = zlib.crc32(content[start:behind])
    return tuple(place for place in places if _number(content, place) == stated)


def _number(content: bytes, place: int) -> int:
    """The 32 bits at a place, little-endian."""
    return int.from_bytes(content[place : place + 4], "little")
