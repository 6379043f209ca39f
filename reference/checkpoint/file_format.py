"""The `.gmc` file: what a `GuardedState` becomes, guarded against damage by digests of every byte.

    description             format version, claim, certificate, sizes, digests
    "skeleton"              `pickled`: [[place, state_dict], ...], the optimizers' states without the guarded moments,
                            and where they lie in the checkpoint
    "beside"                `pickled`: what else is in the checkpoint, such as weights; absent where that is nothing
    the rest                see `packing`; files of format version 1: see `version_1`

`docs/file-format.md` specifies all of it, for readers in other languages.  `container` says how these lie in the file,
`writing` how files come to be; each is read back before it takes its place.  A reader passes over arrays and members of
objects that it does not know; what cannot be passed over raises the format version.

Claimed: `read` returns what `write` was given, or raises; a single changed bit anywhere is found.  Trusted: zlib,
SHA-256, and `torch.load(weights_only=True)` for the skeleton.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from guarded_moments.reference.checkpoint import packing, version_1
from guarded_moments.reference.checkpoint.container import (
    check_arrays,
    check_file,
    check_header,
    chunks,
    contents,
    header_of,
)
from guarded_moments.reference.checkpoint.layouts import apart, together
from guarded_moments.reference.checkpoint.pickled import pack, unpack
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.state import GuardedState
from guarded_moments.reference.checkpoint.writing import drop_from_cache, replacing, same_bytes
from guarded_moments.reference.claim import GradientBound, Horizon, Tolerance
from guarded_moments.reference.errors import CheckpointError, FormatError, GuardedMomentsError

FORMAT_VERSION = 3
#: The last version in which the digest was one, of the whole file, and no certificate was written.
_LAST_WITH_ONE_DIGEST = 2
#: In which arithmetic a claim beyond the first update is: one about a number of updates, and one about all.
ARITHMETICS = ("binary32", "exact")


def write(state: GuardedState, path: Path, *, overwrite: bool = False, spool: Spool | None = None) -> int:
    """Write a `.gmc` file, whole or not at all, read it back, and return its size in bytes.

    Args:
        state: to be written.
        path: its place.
        overwrite: whether an existing file may be replaced.
        spool: gives the memory; ordinary memory by default.

    Raises:
        CheckpointError: the file exists and `overwrite` is false, cannot be written, or did not read back as written.
    """
    spool = spool or Spool()
    content = _chunks(state, spool)

    def check(partial: Path) -> None:
        drop_from_cache(partial)
        try:
            again = read(partial, Spool(spool.folder, spool.memory))
        except GuardedMomentsError:
            again = None
        if again is None or not same_bytes(partial, content):
            msg = f"{path}: what was written could not be read back: the device or its file system is faulty"
            raise CheckpointError(msg)

    with replacing(path, overwrite=overwrite, check=check) as partial, partial.open("wb") as file:
        file.writelines(content)
    return sum(len(chunk) for chunk in content)


def read(path: Path, spool: Spool | None = None) -> GuardedState:
    """Read a `.gmc` file and check every byte of it.

    Args:
        path: its place.
        spool: gives the memory; ordinary memory by default.

    Raises:
        CheckpointError: the file is missing or unreadable.
        FormatError: it is no `.gmc` file, is damaged, or was written by a newer version.
    """
    spool = spool or Spool()
    try:
        with path.open("rb") as file:
            content = spool.empty(os.fstat(file.fileno()).st_size, torch.uint8)
            if file.readinto(content.numpy().data) != len(content) or file.read(1):
                msg = f"{path}: was changed while it was read"
                raise CheckpointError(msg)
    except FileNotFoundError:
        msg = f"{path}: there is no such file"
        raise CheckpointError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None
    try:
        return _state(content, spool)
    except GuardedMomentsError as error:
        raise type(error)(f"{path}: {error}") from None


def to_bytes(state: GuardedState) -> bytes:
    """The file's content."""
    return b"".join(_chunks(state, Spool()))


def from_bytes(content: bytes) -> GuardedState:
    """The state in a file's content.

    Raises:
        FormatError: it is no `.gmc` file, is damaged, or was written by a newer version.
    """
    return _state(packing.as_bytes(content), Spool())


def _chunks(state: GuardedState, spool: Spool) -> list[memoryview]:
    beside, skeleton = _parts(state)
    parts = {"skeleton": skeleton} if beside is None else {"skeleton": skeleton, "beside": beside}
    packed = {name: pack(part, spool) for name, part in parts.items()}
    text = packing.description(state)
    description = {
        "format_version": FORMAT_VERSION,
        "tolerance": repr(state.tolerance.value),
        "gradient_bound": repr(state.gradient_bound.value),
        "horizon": str(state.horizon),
        "certificate": certificate(state),
        "description_bytes": len(text),
        "pickled_bytes": {name: part.size for name, part in packed.items()},
    }
    moments = packing.packed(state, packing.compress_description(text))
    arrays = {**moments, **{name: [part.packed] for name, part in packed.items()}}
    return chunks(arrays, description, packing.BY_TENSOR)


def certificate(state: GuardedState) -> dict[str, Any]:
    """What was guaranteed by whom, about how much; the hyperparameters, by tensor, are in the tensors' description."""
    later = {} if state.horizon == Horizon.FIRST else {"later_updates": ARITHMETICS[state.horizon == Horizon.ALL]}
    return {
        **later,
        "op_models": sorted({tensor.implementation for tensor in state.tensors}),
        "guard": state.guard,
        "coordinates": state.coordinates,
        "escaped": state.escapes,
        "kept": sum(tensor.numel for tensor in state.kept),
        "made_by": dict(state.made_by),
    }


def _require(skeleton: object, kind: type) -> None:
    if not isinstance(skeleton, kind):
        msg = f"its skeleton is a {type(skeleton).__name__}, expected a {kind.__name__}"
        raise FormatError(msg)


def _parts(state: GuardedState) -> tuple[object, object]:
    """What lies beside the optimizers' states, None if nothing does; and these, without the guarded moments."""
    beside, states = apart(state.skeleton)
    return beside, [[list(place), state_dict] for place, state_dict in states]


def skeleton_bytes(state: GuardedState) -> int:
    """How many bytes the optimizers' states take in a file, without the guarded moments."""
    return len(pack(_parts(state)[1], Spool()).packed)


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


def _state(content: Tensor, spool: Spool) -> GuardedState:
    header = header_of(content)
    description = header.description
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
    try:
        if version <= _LAST_WITH_ONE_DIGEST:
            check_file(content, header)
            arrays = contents(content, header)
        else:
            check_header(header)
            arrays = contents(content, header)
            check_arrays(arrays, header, packing.BY_TENSOR)
        return _assemble(version, description, arrays, spool)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, zlib.error, RuntimeError) as error:
        msg = f"is inconsistent although its digests are right ({type(error).__name__}: {error})"
        raise FormatError(msg) from None


def _assemble(version: int, description: Mapping[str, Any], tensors: dict[str, Tensor], spool: Spool) -> GuardedState:
    if version == 1:
        skeleton: Any = unpack(tensors["skeleton"], int(description["skeleton_bytes"]), "skeleton", spool)
        _require(skeleton, dict)
        guarded, kept = version_1.unpacked(description, tensors, skeleton)
    else:
        sizes = description["pickled_bytes"]
        parts: dict[str, Any] = {name: unpack(tensors[name], int(sizes[name]), name, spool) for name in sizes}
        _require(parts["skeleton"], list)
        states = [(tuple(place), state_dict) for place, state_dict in parts["skeleton"]]
        skeleton = together(parts.get("beside"), states)
        size = None if version <= _LAST_WITH_ONE_DIGEST else int(description["description_bytes"])
        guarded, kept = packing.unpacked(tensors, skeleton, size)
    made = description.get("certificate", {})
    state = GuardedState(
        tolerance=Tolerance(float(description["tolerance"])),
        gradient_bound=GradientBound(float(description["gradient_bound"])),
        tensors=guarded,
        kept=kept,
        skeleton=skeleton,
        guard=made.get("guard"),
        made_by=made.get("made_by", {}),
        horizon=Horizon.parse(description["horizon"]),
    )
    if {**made, **certificate(state)} != made and version > _LAST_WITH_ONE_DIGEST:
        msg = "its certificate is not about what it holds"
        raise FormatError(msg)
    return state
