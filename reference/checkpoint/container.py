"""The container of a `.gmc` file: a safetensors file whose metadata hold a digest of the whole.

    8 bytes                the header's length, little-endian
    the header             JSON: for each array its dtype, shape and place; "__metadata__": {"guarded_moments": JSON}
    the arrays             without a gap, those of larger elements first, then by name

The SHA-256 is that of the whole file with the digest's own 64 digits replaced by zeros.  An array is written from its
pieces, one after the other, so that no more than a piece is ever copied.

Claimed: `contents` gives what `chunks` was given, or raises; a single changed bit anywhere is found; arrays are views
of the file's bytes.  `chunks` gives the very bytes that the safetensors library would.  Trusted: SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.errors import FormatError

_METADATA = "guarded_moments"
_NO_DIGEST = "0" * 64
_LENGTH = 8  #: bytes of the header's length
_ALIGNMENT = 8  #: of the header's end
_NAMES = {torch.float32: "F32", torch.uint8: "U8"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}

#: An array in pieces, each contiguous; they are joined along the first axis.
Pieces = Sequence[Tensor]


def chunks(arrays: Mapping[str, Pieces], description: Mapping[str, Any]) -> list[memoryview]:
    """The file's content in pieces, in order; nothing but the header is copied.

    Args:
        arrays: by name; float32 or uint8.
        description: plain data, to which the digest is added.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name][0].dtype.itemsize, name))
    pieces = [_bytes(piece) for name in order for piece in arrays[name]]
    blank = _header(arrays, order, {**description, "sha256": _NO_DIGEST})
    digest = hashlib.sha256(blank)
    for piece in pieces:
        digest.update(piece)
    place = blank.index(_NO_DIGEST.encode())  # nothing before it holds 64 zeros
    header = blank[:place] + digest.hexdigest().encode() + blank[place + len(_NO_DIGEST) :]
    return [memoryview(header), *pieces]


def _header(arrays: Mapping[str, Pieces], order: Sequence[str], description: Mapping[str, Any]) -> bytes:
    first = {"format_version": description["format_version"], "sha256": description["sha256"]}
    text = json.dumps({**first, **description}, separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {_METADATA: text}}
    end = 0
    for name in order:
        pieces = arrays[name]
        begin, end = end, end + sum(piece.nbytes for piece in pieces)
        shape = [sum(len(piece) for piece in pieces), *pieces[0].shape[1:]]
        header[name] = {"dtype": _NAMES[pieces[0].dtype], "shape": shape, "data_offsets": [begin, end]}
    content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    content += b" " * (-len(content) % _ALIGNMENT)
    return len(content).to_bytes(_LENGTH, "little") + content


def _bytes(piece: Tensor) -> memoryview:
    return piece.contiguous().flatten().view(torch.uint8).numpy().data if piece.numel() else memoryview(b"")


def described(content: Tensor) -> dict[str, Any]:
    """What a file says of itself; the digest is not compared yet.

    Args:
        content: the whole file, uint8.

    Raises:
        FormatError: it is no `.gmc` file, or is truncated.
    """
    try:
        description = json.loads(_parsed(content)["__metadata__"][_METADATA])
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = "is no .gmc file, or its header is damaged"
        raise FormatError(msg) from None
    if not isinstance(description, dict):
        msg = "is no .gmc file: its metadata is not an object"
        raise FormatError(msg)
    return description


def _parsed(content: Tensor) -> Any:  # noqa: ANN401 - whatever the file holds
    """The header as JSON."""
    return json.loads(_header_of(content))


def _header_of(content: Tensor) -> bytes:
    length = int.from_bytes(bytes(content[:_LENGTH].numpy().data), "little")
    if len(content) < _LENGTH or length > len(content) - _LENGTH:
        msg = "is no .gmc file, or is truncated"
        raise FormatError(msg)
    return bytes(content[_LENGTH : _LENGTH + length].numpy().data)


def check_digest(content: Tensor) -> None:
    """Compare a file with the digest that it states.

    Raises:
        FormatError: it is damaged.
    """
    stated = str(described(content).get("sha256"))
    place = _header_of(content).find(stated.encode()) if re.fullmatch("[0-9a-f]{64}", stated) else -1
    if place < 0:
        msg = "is damaged: its digest is not one"
        raise FormatError(msg)
    place += _LENGTH
    data = content.numpy().data
    actual = hashlib.sha256(data[:place])
    actual.update(_NO_DIGEST.encode())
    actual.update(data[place + len(stated) :])
    if actual.hexdigest() != stated:
        msg = (
            f"is damaged or truncated: its bytes have SHA-256 {actual.hexdigest()[:16]}..., stated is {stated[:16]}..."
        )
        raise FormatError(msg)


def contents(content: Tensor) -> dict[str, Tensor]:
    """The arrays of a file, as views of it.

    Raises:
        FormatError: they do not fill the file, each its place; also KeyError, TypeError and ValueError.
    """
    data = content[_LENGTH + len(_header_of(content)) :]
    return {name: _array(data, entry) for name, entry in _entries(content, len(data))}


def _entries(content: Tensor, size: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The header's entries in the order of their places, once these have been seen to fill the data."""
    header = _parsed(content)
    end = 0
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    for name, entry in sorted(entries, key=lambda item: item[1]["data_offsets"]):
        begin, following = entry["data_offsets"]
        wanted = math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize
        if begin != end or following - begin != wanted or any(n < 0 for n in entry["shape"]):
            msg = f"its array {name!r} does not fill its place"
            raise FormatError(msg)
        end = following
        yield name, entry
    if end != size:
        msg = f"its arrays take {end} bytes of {size}"
        raise FormatError(msg)


def _array(data: Tensor, entry: Mapping[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    dtype, own = _DTYPES[entry["dtype"]], data[begin:end]
    if own.data_ptr() % dtype.itemsize or own.storage_offset() % dtype.itemsize:
        own = own.clone()  # a foreign writer's header
    return own.view(dtype).view(entry["shape"])
