"""The container of a `.gmc` file: a safetensors file whose metadata hold digests.

    8 bytes                the header's length, little-endian
    the header             JSON: for each array its dtype, shape and place; "__metadata__": {"guarded_moments": JSON}
    the arrays             without a gap, those of larger elements first, then by name

The header states the SHA-256 of itself, its own 64 digits replaced by zeros, and that of each array, but of those that
hold a part of each tensor: their digests are the tensors', and stand in an array.  (Up to format version 2 there was
one digest, of the whole file.)  An array is written from its pieces, one after the other, so that no more than a piece
is ever copied.  `docs/file-format.md` is the specification.

Claimed: `contents` gives what `chunks` was given, or raises; a single changed bit of the header, of its length or of an
array with a digest is found; arrays are views of the file's bytes.  `chunks` gives the very bytes that the safetensors
library would.  Trusted: SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

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


def chunks(
    arrays: Mapping[str, Pieces], description: Mapping[str, Any], by_tensor: Collection[str]
) -> list[memoryview]:
    """The file's content in pieces, in order; nothing but the header is copied.

    Args:
        arrays: by name; float32 or uint8.
        description: plain data, to which the digests are added.
        by_tensor: the arrays of which each tensor's part has a digest elsewhere.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name][0].dtype.itemsize, name))
    pieces = {name: [as_memory(piece) for piece in arrays[name]] for name in order}
    digests = {name: digest_of_bytes(*pieces[name]) for name in sorted(set(arrays) - set(by_tensor))}
    blank = _header(arrays, order, {**description, "arrays": digests, "sha256": _NO_DIGEST})
    place = blank.index(_NO_DIGEST.encode())  # nothing before it holds 64 zeros
    header = blank[:place] + digest_of_bytes(blank).encode() + blank[place + len(_NO_DIGEST) :]
    return [memoryview(header), *(piece for name in order for piece in pieces[name])]


def digest_of_bytes(*pieces: bytes | memoryview) -> str:
    """The SHA-256 of bytes that follow each other, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


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


def as_memory(piece: Tensor) -> memoryview:
    """The bytes of a tensor's elements; of a contiguous one, not a copy."""
    return piece.contiguous().flatten().view(torch.uint8).numpy().data if piece.numel() else memoryview(b"")


class Header(NamedTuple):
    """A file's header, parsed."""

    raw: bytes  #: its length, and itself
    entries: Mapping[str, Any]  #: for each array its dtype, shape and place, and the metadata
    description: Mapping[str, Any]  #: what the file says of itself; no digest is compared yet


def header_of(content: Tensor) -> Header:
    """Read a file's header.

    Args:
        content: the whole file, uint8.

    Raises:
        FormatError: it is no `.gmc` file, or is truncated.
    """
    length = int.from_bytes(bytes(content[:_LENGTH].numpy().data), "little")
    if len(content) < _LENGTH or length > len(content) - _LENGTH:
        msg = "is no .gmc file, or is truncated"
        raise FormatError(msg)
    raw = bytes(content[: _LENGTH + length].numpy().data)
    try:
        entries = json.loads(raw[_LENGTH:])
        description = json.loads(entries["__metadata__"][_METADATA])
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = "is no .gmc file, or its header is damaged"
        raise FormatError(msg) from None
    if not isinstance(description, dict):
        msg = "is no .gmc file: its metadata is not an object"
        raise FormatError(msg)
    return Header(raw, entries, description)


def check_header(header: Header) -> None:
    """Compare a header and its length with the digest that it states.

    Raises:
        FormatError: it is damaged.
    """
    _check_stated(header, memoryview(b""), "header has")


def check_file(content: Tensor, header: Header) -> None:
    """The same of a whole file of format version 1 or 2, where the digest is of all its bytes."""
    _check_stated(header, content[len(header.raw) :].numpy().data, "bytes have")


def _check_stated(header: Header, rest: memoryview, what: str) -> None:
    stated = str(header.description.get("sha256"))
    place = header.raw.find(stated.encode()) if re.fullmatch("[0-9a-f]{64}", stated) else -1
    if place < 0:
        msg = "is damaged: its digest is not one"
        raise FormatError(msg)
    actual = digest_of_bytes(header.raw[:place], _NO_DIGEST.encode(), header.raw[place + len(stated) :], rest)
    require_digest(actual, stated, f"is damaged or truncated: its {what}")


def require_digest(actual: str, stated: object, what: str) -> None:
    """Refuse what has another digest than is stated.

    Raises:
        FormatError: it has; the text begins with `what`.
    """
    if actual != stated:
        msg = f"{what} SHA-256 {actual[:16]}..., stated is {str(stated)[:16]}..."
        raise FormatError(msg)


def contents(content: Tensor, header: Header) -> dict[str, Tensor]:
    """The arrays of a file, as views of it; those of an unknown element type, a newer program's, as bytes.

    Raises:
        FormatError: they do not fill the file, each its place; also KeyError, TypeError and ValueError.
    """
    data = content[len(header.raw) :]
    arrays, end = {}, 0
    entries = [(name, entry) for name, entry in header.entries.items() if name != "__metadata__"]
    for name, entry in sorted(entries, key=lambda item: item[1]["data_offsets"]):
        begin, following = entry["data_offsets"]
        known = entry["dtype"] in _DTYPES
        wanted = math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize if known else following - begin
        if begin != end or following - begin != wanted or following < begin or any(n < 0 for n in entry["shape"]):
            msg = f"its array {name!r} does not fill its place"
            raise FormatError(msg)
        if following > len(data):
            break
        end = following
        arrays[name] = _array(data[begin:end], entry) if known else data[begin:end]
    if end != len(data) or len(arrays) != len(entries):
        msg = f"is damaged or truncated: its arrays take more or less than the {len(data)} bytes that are there"
        raise FormatError(msg)
    return arrays


def _array(own: Tensor, entry: Mapping[str, Any]) -> Tensor:
    dtype = _DTYPES[entry["dtype"]]
    if own.data_ptr() % dtype.itemsize or own.storage_offset() % dtype.itemsize:
        own = own.clone()  # a foreign writer's header
    return own.view(dtype).view(entry["shape"])


def check_arrays(arrays: Mapping[str, Tensor], header: Header, by_tensor: Collection[str]) -> None:
    """Compare every array, known or not, with its digest in the header, once that has been checked.

    Args:
        arrays: of the file.
        header: of the file.
        by_tensor: those that need no digest there.

    Raises:
        FormatError: one is damaged, or has no digest; also KeyError and TypeError.
    """
    stated = header.description["arrays"]
    for name, array in arrays.items():
        if name in stated or name not in by_tensor:
            require_digest(digest_of_bytes(as_memory(array)), stated[name], f"is damaged: its array {name!r} has")
