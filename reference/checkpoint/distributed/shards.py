"""One file of torch.distributed.checkpoint as a checkpoint that can be compressed, and back.

A shard is its file's bytes with holes where the moments were, and the moments as the state of an optimizer whose
parameters are chunks:

    {"file": name, "metadata_sha256": of the folder's `.metadata`,
     "rest": uint8, the bytes outside the holes, zeros where a CRC-32 follows from a hole,
     "holes": [[start, length, [places of the CRC-32], owner, optimizer, key, moment], ...],
     "optimizers": {optimizer: {"state": {key: {"step", "exp_avg", "exp_avg_sq"}}, "param_groups": [...]}}}

Replicated states (DistributedDataParallel) may have the two moments of a parameter in two files: the pair then belongs
to the file of the first moment, the *owner*, and the hole in the other file names it.

Claimed: with the native moments put back, the file is the native file byte for byte; with others, nothing but their
bytes and CRC-32s differs, so that `.metadata` stays true and any number of ranks can load it.  The claim of a chunk
does not depend on where later ranks cut: the guard's constants cover every op model of an implementation at every
element.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.distributed.items import bytes_of, payload_of, value_of
from guarded_moments.reference.checkpoint.distributed.metadata import Item, read_metadata
from guarded_moments.reference.checkpoint.distributed.optimizers import Optimizers, Pair
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS
from guarded_moments.reference.errors import CheckpointError, FormatError

_CRC_BYTES = 4

#: Gives a moment: of which owner, optimizer, key and name.
MomentOf = Callable[[str, str, str, str], Tensor]


class Folder:
    """A native folder of torch.distributed.checkpoint.

    Raises:
        CheckpointError: it is none, is damaged, or holds no state of Adam or AdamW.
        UnsupportedError: it was written with an extension.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = read_metadata(path)
        self._optimizers = Optimizers(path, self.metadata)
        self._pairs: dict[str, list[Pair]] = defaultdict(list)
        for pair in self._optimizers.pairs():
            self._pairs[pair.m.file].append(pair)
            if pair.v.file != pair.m.file:
                self._pairs[pair.v.file].append(pair)

    @property
    def files(self) -> list[str]:
        """The names of its files, `.metadata` apart."""
        return list(self.metadata.files())

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum((self.path / file).stat().st_size for file in self.files)

    def shard(self, file: str) -> dict[str, Any]:
        """One file as a checkpoint, see above.

        Raises:
            CheckpointError: it cannot be read or is damaged.
            UnsupportedError: a moment is stored in a way that is not handled.
        """
        try:
            content = bytearray((self.path / file).read_bytes())
        except OSError as error:
            msg = f"{self.path / file}: cannot be read: {error.strerror or error}"
            raise CheckpointError(msg) from None
        holes: list[list[Any]] = []
        owned: dict[str, list[Pair]] = defaultdict(list)
        states: dict[str, dict[str, Any]] = defaultdict(dict)
        for pair in self._pairs[file]:
            moments = {}
            for name, item in zip(MOMENTS, (pair.m, pair.v), strict=True):
                if file not in {item.file, pair.m.file}:
                    continue  # the other file has both this moment and the pair
                inside = (
                    self._bytes(item) if item.file != file else bytes(content[item.start : item.start + item.length])
                )
                moments[name] = _tensor(inside, item)
                if item.file == file:
                    payload = payload_of(inside, moments[name], item)
                    places = [item.start + place for place in payload.checksums]
                    start = item.start + payload.start
                    holes.append([start, payload.length, places, pair.m.file, pair.optimizer, pair.key, name])
            if pair.m.file == file:
                owned[pair.optimizer].append(pair)
                states[pair.optimizer][pair.key] = {**self._optimizers.entry(pair), **moments}
        holes.sort()
        for _, _, places, *_ in holes:
            for place in places:  # they follow from what is put into the hole
                content[place : place + _CRC_BYTES] = bytes(_CRC_BYTES)
        return {
            "file": file,
            "metadata_sha256": self.metadata.sha256,
            "rest": torch.frombuffer(bytearray(_outside(content, holes)), dtype=torch.uint8),
            "holes": holes,
            "optimizers": {
                optimizer: {"state": state, "param_groups": self._optimizers.groups(owned[optimizer])}
                for optimizer, state in states.items()
            }
            or {"": {"state": {}, "param_groups": []}},
        }

    def _bytes(self, item: Item) -> bytes:
        with (self.path / item.file).open("rb") as file:
            file.seek(item.start)
            return file.read(item.length)


def _tensor(content: bytes, item: Item) -> Tensor:
    value = value_of(content, item)
    if not isinstance(value, Tensor):
        msg = f"{item.file}: {item.name} is a {type(value).__name__}, expected a tensor"
        raise CheckpointError(msg)
    return value


def _outside(content: bytearray, holes: list[list[Any]]) -> bytes:
    parts, end = [], 0
    for start, length, *_ in holes:
        parts.append(content[end:start])
        end = start + length
    return b"".join([*parts, content[end:]])


def filled(shard: dict[str, Any], moment_of: MomentOf) -> bytes:
    """A shard's file again, with moments in its holes.

    Raises:
        FormatError: the holes do not fit the file or the moments.
    """
    rest = bytes(shard["rest"].numpy().data)
    content = bytearray()
    used = 0
    for start, length, _, owner, optimizer, key, name in shard["holes"]:
        between = start - len(content)
        payload = bytes_of(moment_of(owner, optimizer, key, name))
        if between < 0 or used + between > len(rest) or len(payload) != length:
            msg = f"{shard['file']}: the hole for {key} {name} does not fit"
            raise FormatError(msg)
        content += rest[used : used + between]
        content += payload
        used += between
    content += rest[used:]
    for start, length, places, *_ in shard["holes"]:
        crc = struct.pack("<L", zlib.crc32(content[start : start + length]))
        for place in places:
            if not 0 <= place <= len(content) - _CRC_BYTES:
                msg = f"{shard['file']}: a checksum is said to stand at {place}, outside the file"
                raise FormatError(msg)
            content[place : place + _CRC_BYTES] = crc
    return bytes(content)
