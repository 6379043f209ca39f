"""The `.gmc` file: one safetensors file that holds a `GuardedState`, guarded against damage by a digest of every byte.

    header metadata "guarded_moments"   JSON: format version, SHA-256, and the claim
    "skeleton"                          uint8: zlib of torch.save of [[place, state_dict], ...], the optimizers' states
                                        without the guarded moments, and where they lie in the checkpoint
    "beside"                            uint8: zlib of torch.save of what else is in the checkpoint, such as weights;
                                        absent where the checkpoint is a bare state_dict
    the rest                            see `packing`; files of format version 1: see `version_1`

The SHA-256 is that of the whole file with the digest's own 64 digits replaced by zeros.  How files are written: see
`writing`; each is read back and compared before it takes its place.

Claimed: `read` returns what `write` was given, or raises; a single changed bit anywhere is found.  Trusted:
safetensors, zlib, SHA-256, and `torch.load(weights_only=True)` for the skeleton.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from guarded_moments.reference.checkpoint import packing, version_1
from guarded_moments.reference.checkpoint.layouts import apart, together
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.checkpoint.writing import write_bytes
from guarded_moments.reference.claim import GradientBound, Tolerance
from guarded_moments.reference.errors import CheckpointError, FormatError, GuardedMomentsError

FORMAT_VERSION = 2
_METADATA = "guarded_moments"
_NO_DIGEST = "0" * 64
_LARGE = 1 << 20  #: bytes above which a part of the skeleton is compressed fast rather than hard
_HEADER_LENGTH = 8  #: bytes of a safetensors file's leading little-endian header size


def write(state: GuardedState, path: Path, *, overwrite: bool = False) -> int:
    """Write a `.gmc` file, whole or not at all, read it back, and return its size in bytes.

    Raises:
        CheckpointError: the file exists and `overwrite` is false, cannot be written, or did not read back as written.
    """
    content = to_bytes(state)
    from_bytes(content)
    write_bytes(path, content, overwrite=overwrite)
    return len(content)


def read(path: Path) -> GuardedState:
    """Read a `.gmc` file and check every byte of it.

    Raises:
        CheckpointError: the file is missing or unreadable.
        FormatError: it is no `.gmc` file, is damaged, or was written by a newer version.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        msg = f"{path}: there is no such file"
        raise CheckpointError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None
    try:
        return from_bytes(content)
    except GuardedMomentsError as error:
        raise type(error)(f"{path}: {error}") from None


def to_bytes(state: GuardedState) -> bytes:
    """The file's content."""
    beside, skeleton = _parts(state)
    pickled = {"skeleton": _pickled(skeleton)}
    if beside is not None:
        pickled["beside"] = _pickled(beside)
    tensors = {**packing.packed(state), **{name: _packed(content) for name, content in pickled.items()}}
    description = {
        "format_version": FORMAT_VERSION,
        "sha256": _NO_DIGEST,
        "tolerance": repr(state.tolerance.value),
        "gradient_bound": repr(state.gradient_bound.value),
        "horizon": "1",
        "pickled_bytes": {name: len(content) for name, content in pickled.items()},
    }
    text = json.dumps(description, separators=(",", ":"))
    blank = safetensors.torch.save(tensors, {_METADATA: text})
    digest = hashlib.sha256(blank).hexdigest().encode()
    place = blank.index(_NO_DIGEST.encode())  # the header comes first, and nothing before it holds 64 zeros
    return blank[:place] + digest + blank[place + len(digest) :]


def _parts(state: GuardedState) -> tuple[object, object]:
    """What lies beside the optimizers' states, None if nothing does; and these, without the guarded moments."""
    beside, states = apart(state.skeleton)
    return beside, [[list(place), state_dict] for place, state_dict in states]


def skeleton_bytes(state: GuardedState) -> int:
    """How many bytes the optimizers' states take in a file, without the guarded moments."""
    return len(_packed(_pickled(_parts(state)[1])))


def bytes_beside(path: Path) -> int:
    """How many bytes of a `.gmc` file hold what lies beside the optimizers' states: weights, schedulers and the like.

    Raises:
        CheckpointError: the file cannot be read.
        FormatError: it is no `.gmc` file.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return file.get_slice("beside").get_shape()[0] if "beside" in file.keys() else 0  # noqa: SIM118 - no mapping
    except (OSError, safetensors.SafetensorError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise CheckpointError(msg) from None


def _packed(content: bytes) -> Tensor:
    """Compressed; hard where it is small, and fast where it is gigabytes of weights, which hardly shrink."""
    level = 9 if len(content) < _LARGE else 1
    return torch.frombuffer(bytearray(zlib.compress(content, level)), dtype=torch.uint8)


def _unpacked(packed: Tensor, size: int, name: str) -> object:
    """What `_pickled` and `_packed` made of it.

    Raises:
        FormatError: it has not the stated size.
    """
    content = zlib.decompressobj().decompress(packed.numpy().data, size)
    if len(content) != size:
        msg = f"its {name} has {len(content)} bytes, stated are {size}"
        raise FormatError(msg)
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _pickled(part: object) -> bytes:
    """A part of the skeleton as `torch.save` writes it, once a safe load has been seen to read it again.

    Raises:
        CheckpointError: it holds something that only unsafe loading could restore.
    """
    buffer = io.BytesIO()
    try:
        torch.save(part, buffer)
        torch.load(io.BytesIO(buffer.getvalue()), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - objects of any class may refuse in any way
        cause = " ".join(str(error).split())[:200]
        msg = f"the checkpoint holds more than tensors and plain values, and could not be read again safely ({cause})"
        raise CheckpointError(msg) from None
    return buffer.getvalue()


def from_bytes(content: bytes) -> GuardedState:
    """The state in a file's content.

    Raises:
        FormatError: it is no `.gmc` file, is damaged, or was written by a newer version.
    """
    description = _description(content)
    version = description.get("format_version")
    if not isinstance(version, int):
        msg = "is no .gmc file: its metadata names no format version"
        raise FormatError(msg)
    if version > FORMAT_VERSION:
        msg = (
            f"was written in format version {version}, and this program knows up to {FORMAT_VERSION}: "
            "install a newer guarded-moments"
        )
        raise FormatError(msg)
    _check_digest(content, str(description.get("sha256")))
    try:
        tensors = safetensors.torch.load(content)
        return _assemble(version, description, tensors)
    except (
        safetensors.SafetensorError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        zlib.error,
        RuntimeError,
    ) as error:
        msg = f"is inconsistent although its digest is right ({type(error).__name__}: {error})"
        raise FormatError(msg) from None
    except pickle.UnpicklingError:
        msg = "its skeleton holds objects that only unsafe loading could restore"
        raise FormatError(msg) from None


def _description(content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:_HEADER_LENGTH], "little")
    if len(content) < _HEADER_LENGTH or length > len(content) - _HEADER_LENGTH:
        msg = "is no .gmc file, or is truncated"
        raise FormatError(msg)
    try:
        header = json.loads(content[_HEADER_LENGTH : _HEADER_LENGTH + length])
        description = json.loads(header["__metadata__"][_METADATA])
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = "is no .gmc file, or its header is damaged"
        raise FormatError(msg) from None
    if not isinstance(description, dict):
        msg = "is no .gmc file: its metadata is not an object"
        raise FormatError(msg)
    return description


def _check_digest(content: bytes, stated: str) -> None:
    well_formed = re.fullmatch("[0-9a-f]{64}", stated) is not None
    place = content.find(stated.encode()) if well_formed else -1
    if place < 0:
        msg = "is damaged: its digest is not one"
        raise FormatError(msg)
    actual = hashlib.sha256(content[:place])
    actual.update(_NO_DIGEST.encode())
    actual.update(content[place + len(stated) :])
    if actual.hexdigest() != stated:
        msg = (
            f"is damaged or truncated: its bytes have SHA-256 {actual.hexdigest()[:16]}..., stated is {stated[:16]}..."
        )
        raise FormatError(msg)


def _assemble(version: int, description: dict[str, Any], tensors: dict[str, Tensor]) -> GuardedState:
    if version == 1:
        skeleton: Any = _unpacked(tensors["skeleton"], int(description["skeleton_bytes"]), "skeleton")
        guarded, kept = version_1.unpacked(description, tensors, skeleton)
    else:
        sizes = description["pickled_bytes"]
        parts: dict[str, Any] = {name: _unpacked(tensors[name], int(sizes[name]), name) for name in sizes}
        states = [(tuple(place), state_dict) for place, state_dict in parts["skeleton"]]
        skeleton = together(parts.get("beside"), states)
        guarded, kept = packing.unpacked(tensors, skeleton)
    return GuardedState(
        tolerance=Tolerance(float(description["tolerance"])),
        gradient_bound=GradientBound(float(description["gradient_bound"])),
        tensors=guarded,
        kept=kept,
        skeleton=skeleton,
    )
