"""Files taken apart and put together again with digests that are right, as an attacker would: what damage cannot do."""

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

METADATA = "guarded_moments"
LENGTH = 8  # of the safetensors header's own length
BY_TENSOR = ("m_codes", "v_codes", "escapes", "parameters")
NO_DIGEST = "0" * 64
CODE_BYTES = {"bf16": 2}
ELEMENT_BYTES = {"float32": 4, "int16": 2}


class Opened(NamedTuple):
    """A file's parts."""

    said: dict[str, Any]  #: the header's description
    inside: dict[str, Any]  #: the compressed one
    arrays: dict[str, Tensor]  #: all but that


def opened(content: bytes) -> Opened:
    """A file's parts, without a look at its digests."""
    arrays = safetensors.torch.load(content)
    inside = json.loads(zlib.decompress(bytes(arrays.pop("description").numpy().data)))
    return Opened(said_by(content), inside, arrays)


def said_by(content: bytes) -> dict[str, Any]:
    """What the header says."""
    length = int.from_bytes(content[:LENGTH], "little")
    said: dict[str, Any] = json.loads(json.loads(content[LENGTH : LENGTH + length])["__metadata__"][METADATA])
    return said


def sealed(said: Mapping[str, Any], inside: Mapping[str, Any] | bytes, arrays: Mapping[str, Tensor]) -> bytes:
    """A file of these parts, with digests that are right for them; of tensors, as far as these can be told apart."""
    text = inside if isinstance(inside, bytes) else json.dumps(_with_digests(inside, arrays)).encode()
    packed = torch.frombuffer(bytearray(zlib.compress(text)), dtype=torch.uint8)
    whole = {**arrays, "description": packed}
    digests = {name: hashlib.sha256(_raw(array)).hexdigest() for name, array in whole.items() if name not in BY_TENSOR}
    said = {**said, "description_bytes": len(text), "arrays": digests, "sha256": NO_DIGEST}
    return with_right_header(safetensors.torch.save(whole, {METADATA: json.dumps(said)}))


def with_right_header(content: bytes) -> bytes:
    """The file with the digest that is right for its header, in place of the one it states or of zeros."""
    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    try:
        stated = said_by(content)["sha256"].encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        return content
    blank = content[:end].replace(stated, NO_DIGEST.encode(), 1)
    digest = hashlib.sha256(blank).hexdigest()
    return blank.replace(NO_DIGEST.encode(), digest.encode(), 1) + content[end:]


def _raw(array: Tensor) -> bytes:
    return bytes(array.contiguous().flatten().view(torch.uint8).numpy().data) if array.numel() else b""


def _with_digests(inside: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    left = {name: _raw(arrays[name]) if name in arrays else b"" for name in BY_TENSOR}

    def take(name: str, size: int) -> bytes:
        taken, left[name] = left[name][:size], left[name][size:]
        return taken

    try:
        tensors = []
        for entry in inside["tensors"]:
            whole = math.prod(entry["shape"]) * CODE_BYTES.get(entry["codec"], 1)
            m_bytes, v_bytes = entry.get("code_bytes", (whole, whole))
            stored = take("m_codes", m_bytes) + take("v_codes", v_bytes) + take("escapes", 8 * entry["escapes"])
            for dtype, count in entry["arrays"].values():
                stored += take("parameters", ELEMENT_BYTES[dtype] * count)
            tensors.append({**entry, "sha256": hashlib.sha256(stored).hexdigest()[:32]})
    except (LookupError, TypeError, ValueError):
        return dict(inside)
    return {**inside, "tensors": tensors}
