"""What stands where inside a `.gmc` file: guarded tensors as one description and a few long arrays, and back.

    "m_codes", "v_codes"    uint8: the codes of all guarded tensors, one after the other, little-endian; see `planes`
    "escapes"               float32, (escapes, 2): the native pairs, in the same order
    "parameters"            uint8: what codecs need besides plain data, as the description says
    "description"           uint8: zlib of JSON, one entry per guarded tensor, and the tensors kept whole

Few arrays and a compressed description keep the overhead of a tensor to some sixty bytes.  Each tensor has a digest of
what is stored of it, so that damage is found with the name of the tensor.

Claimed: `unpacked` gives what `packed` was given, or raises.  Nothing in a file is trusted to fit anything else.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.container import Pieces, require_digest
from guarded_moments.reference.checkpoint.layouts import Place, at, entry_at
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, is_dense
from guarded_moments.reference.checkpoint.pickled import unzip
from guarded_moments.reference.checkpoint.planes import codes_of
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor, KeptTensor, digest_of_stored
from guarded_moments.reference.claim import GradientBound
from guarded_moments.reference.codecs import CODECS, Codec, Codes
from guarded_moments.reference.errors import FormatError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters

_TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.int16, torch.int8)}
_NATIVE = 2  #: moments of a coordinate

#: Bytes that a description may take where the file does not say how many: that of a million tensors takes less.
_MOST_UNSTATED = 1 << 29

#: The arrays that hold a part of each tensor; the digests are in the description.
BY_TENSOR = ("m_codes", "v_codes", "escapes", "parameters")


def packed(state: GuardedState, compressed: bytes) -> dict[str, Pieces]:
    """The arrays of a file, all but those of the checkpoint around the moments; the pieces are not joined.

    Args:
        state: to be written.
        compressed: its description.
    """
    parameters = [array for tensor in state.tensors for array in tensor.codec.parameter_tensors().values()]
    return {
        "m_codes": _bytes_of([tensor.stored.m for tensor in state.tensors]),
        "v_codes": _bytes_of([tensor.stored.v for tensor in state.tensors]),
        "escapes": [torch.empty(0, _NATIVE), *(tensor.escapes for tensor in state.tensors)],
        "parameters": _bytes_of(parameters),
        "description": [as_bytes(compressed)],
    }


def compress_description(text: bytes) -> bytes:
    """As it lies in a file."""
    return zlib.compress(text, 9)


def description(state: GuardedState) -> bytes:
    """What a file says of its tensors."""
    hyperparameters = _ByGroup(state.skeleton)
    groups = [hyperparameters.of(tensor) for tensor in state.tensors]
    different: list[dict[str, Any]] = []
    for group in groups:
        if group not in different:
            different.append(group)
    content = {
        "hyperparameters": different,
        "tensors": [
            _describe(tensor, different.index(group)) for tensor, group in zip(state.tensors, groups, strict=True)
        ],
        "kept": [[t.key, t.where, t.numel, t.because] for t in state.kept],
    }
    return json.dumps(content, separators=(",", ":")).encode()


class _ByGroup:
    """The hyperparameters of a checkpoint's tensors, each param_group's read once, as plain data."""

    def __init__(self, skeleton: Mapping[str, Any]) -> None:
        self._skeleton = skeleton
        self._groups: dict[Place, dict[int | str, Mapping[str, Any]]] = {}
        self._found: dict[int, dict[str, Any]] = {}

    def of(self, tensor: GuardedTensor) -> dict[str, Any]:
        if tensor.place not in self._groups:
            groups = at(self._skeleton, tensor.place)["param_groups"]
            self._groups[tensor.place] = {key: group for group in groups for key in group["params"]}
        group = self._groups[tensor.place][tensor.key]
        if id(group) not in self._found:
            self._found[id(group)] = asdict(Hyperparameters.from_param_group(group, tensor.where))
        return self._found[id(group)]


def _describe(tensor: GuardedTensor, hyperparameters: int) -> dict[str, Any]:
    arrays = tensor.codec.parameter_tensors()
    bound = {} if tensor.own_bound is None else {"gradient_bound": repr(tensor.own_bound.value)}
    packed_sizes = {} if tensor.codec.low_bits() is None else {"code_bytes": [len(part) for part in tensor.stored]}
    return {
        "place": list(tensor.place),
        "key": tensor.key,
        "where": tensor.where,
        "shape": list(tensor.shape),
        "stride": list(tensor.stride),
        "implementation": tensor.implementation,
        "next_step": tensor.next_step,
        "lr": repr(tensor.lr),
        "hyperparameters": hyperparameters,
        **bound,
        **packed_sizes,
        "codec": tensor.codec.name,
        "parameters": dict(tensor.codec.parameters()),
        "arrays": {name: [str(x.dtype).removeprefix("torch."), len(x)] for name, x in arrays.items()},
        "escapes": len(tensor.escapes),
        "native_digest": tensor.native_digest,
        "sha256": tensor.digest(),
    }


def as_bytes(content: bytes) -> Tensor:
    """As a tensor of uint8."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _bytes_of(arrays: Sequence[Tensor]) -> Pieces:
    return [torch.empty(0, dtype=torch.uint8), *(array.contiguous().view(torch.uint8) for array in arrays)]


class _Reader:
    """Takes arrays off the front of a long one."""

    def __init__(self, content: Tensor, what: str) -> None:
        self._left, self._what = content, what

    def take(self, dtype: torch.dtype, count: int) -> Tensor:
        size = count * dtype.itemsize
        if not 0 <= size <= len(self._left):
            raise FormatError(f"its {self._what} end before the tensors do")
        taken, self._left = self._left[:size], self._left[size:]
        aligned = taken.data_ptr() % dtype.itemsize == taken.storage_offset() % dtype.itemsize == 0
        return (taken if aligned else taken.clone()).view(dtype)

    def close(self) -> None:
        if len(self._left):
            raise FormatError(f"its {self._what} are {len(self._left)} bytes more than the tensors need")


def unpacked(
    tensors: Mapping[str, Tensor], skeleton: Mapping[str, Any], description_bytes: int | None
) -> tuple[tuple[GuardedTensor, ...], tuple[KeptTensor, ...]]:
    """The guarded and the kept tensors.

    Args:
        tensors: the arrays.
        skeleton: the checkpoint with None in the moments' places.
        description_bytes: size of the description, unpacked; None up to format version 2, where the file does not say
            it, nor has each tensor a digest.

    Raises:
        FormatError: the arrays do not fit the description; also KeyError, TypeError, ValueError and zlib.error.
        UnsupportedError: a codec that this version does not know.
    """
    packed, digested = tensors["description"], description_bytes is not None
    most = _MOST_UNSTATED if description_bytes is None else description_bytes
    text = unzip(packed, most, "description")
    if digested and len(text) != most:
        raise FormatError(f"its description has not the {most} bytes that are stated")
    content = json.loads(text)
    names = ("m_codes", "v_codes", "parameters")
    if any(tensors[name].dtype is not torch.uint8 or tensors[name].ndim != 1 for name in names):
        raise FormatError("its codes and parameters are not bytes")
    escapes = tensors["escapes"]
    if escapes.dtype is not torch.float32 or escapes.ndim != _NATIVE or escapes.shape[1] != _NATIVE:
        raise FormatError("its escapes are not pairs of float32")
    m_codes, v_codes, parameters = (_Reader(tensors[name], name.replace("_", " ")) for name in names)
    pairs = _Reader(escapes.flatten().view(torch.uint8), "escapes")
    guarded, hyperparameters = [], _ByGroup(skeleton)
    for entry in content["tensors"]:
        kind = codec_named(entry)
        arrays = {name: parameters.take(_TYPES[dtype], int(count)) for name, (dtype, count) in entry["arrays"].items()}
        numel = math.prod(entry["shape"])
        planes: list[int] | None = entry.get("code_bytes")
        held = Codes(
            *(
                part.take(kind.code_type, numel) if planes is None else part.take(torch.uint8, int(planes[moment]))
                for moment, part in enumerate((m_codes, v_codes))
            )
        )
        own = pairs.take(torch.float32, _NATIVE * int(entry["escapes"])).view(-1, _NATIVE)
        if digested:
            digest = digest_of_stored(*held, own, *arrays.values())
            require_digest(digest, entry["sha256"], f"is damaged: what is stored of {entry['where']} has")
        codec = kind.from_parameters(entry["parameters"], arrays)
        low_bits = codec.low_bits()
        if (low_bits is None) != (planes is None):
            raise FormatError(f"{entry['where']}: how many bytes its codes take is said of what has none, or not said")
        codes = held if low_bits is None else codes_of(held, low_bits, numel)
        tensor = assembled(entry, codec, codes, own, skeleton)
        own_hyperparameters = hyperparameters.of(tensor)
        if digested:
            stated = content["hyperparameters"][entry["hyperparameters"]]
            if {**stated, **own_hyperparameters} != stated:  # a newer program may state more of them
                raise FormatError(f"{tensor.where}: its hyperparameters are not those of the checkpoint in the file")
        guarded.append(tensor)
    for reader in (m_codes, v_codes, parameters, pairs):
        reader.close()
    return tuple(guarded), tuple(KeptTensor(*entry) for entry in content["kept"])


def codec_named(entry: Mapping[str, Any]) -> type[Codec]:
    """The codec that an entry of a description names."""
    if entry["codec"] not in CODECS:
        known = ", ".join(CODECS)
        raise UnsupportedError(f"{entry['where']}: codec {entry['codec']!r} is not known; this version knows {known}")
    return CODECS[entry["codec"]]


def assembled(
    entry: Mapping[str, Any],
    codec: Codec,
    codes: tuple[Tensor, Tensor],
    escapes: Tensor,
    skeleton: Mapping[str, Any],
) -> GuardedTensor:
    """One guarded tensor, once its parts have been seen to fit each other."""
    where, shape, stride = entry["where"], tuple(entry["shape"]), tuple(entry["stride"])
    place = tuple(entry["place"])
    kept: object = entry_at(skeleton, place, entry["key"])
    room = isinstance(kept, dict) and all(kept.get(name, 0) is None for name in MOMENTS)
    if not room or not is_dense(shape, stride):
        raise FormatError(f"{where}: its key, shape or memory layout does not fit the rest of the file")
    codec.require_numel(math.prod(shape))
    if len(escapes) != int(codec.escaped(*codes).sum()):
        raise FormatError(f"{where}: its codes and escapes do not fit its shape {shape}")
    return GuardedTensor(
        place=place,
        key=entry["key"],
        where=where,
        shape=shape,
        stride=stride,
        implementation=entry["implementation"],
        next_step=float(entry["next_step"]),
        lr=float(entry["lr"]),
        codec=codec,
        m_codes=codes[0],
        v_codes=codes[1],
        escapes=escapes,
        native_digest=entry["native_digest"],
        own_bound=GradientBound(float(entry["gradient_bound"])) if "gradient_bound" in entry else None,
    )
