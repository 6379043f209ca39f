"""Codes as a file holds them: bytes as they are, or in two planes, of which the leading one is entropy-coded.

A codec that says how many `low_bits` its codes have is stored so, each moment for itself:

    leading    the eight bits above, a byte a coordinate: zlib's stream (RFC 1950), Huffman codes and nothing else
    low        `low_bits` bits a coordinate, one after the other, the lowest first; the last byte filled with zeros

Huffman's codes are at least a bit long, so that a stream stands for at most eight times its own bytes: a reader refuses
a tensor that claims more coordinates, before it takes memory for them.  Claimed: `codes_of` gives what `stored` was
given, or raises.  Trusted: zlib.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.pickled import unzip
from guarded_moments.reference.codecs import Codes
from guarded_moments.reference.errors import FormatError

_LEADING_BITS = 8
_MOST_A_BYTE = 8  #: coordinates that a byte of Huffman's codes can stand for
_STRETCH = 1 << 20  #: coordinates that are worked on at a time, a multiple of 8
_MEMORY_LEVEL = 9  #: of zlib: 32,768 coordinates share a table


def stored(codes: Codes, low_bits: tuple[int, int] | None) -> Codes:
    """What a file holds of a tensor's codes: two tensors of uint8.

    Args:
        codes: of the tensor.
        low_bits: of its codec.
    """
    if low_bits is None:
        return Codes(*(code.contiguous().view(torch.uint8) for code in codes))
    return Codes(*(_stored(code, bits) for code, bits in zip(codes, low_bits, strict=True)))


def codes_of(held: Codes, low_bits: tuple[int, int], numel: int) -> Codes:
    """The codes again of what is stored in planes: uint16, (numel,).

    Raises:
        FormatError: it is not what so many codes are stored as; also zlib.error.
    """
    return Codes(*(_codes_of(part, bits, numel) for part, bits in zip(held, low_bits, strict=True)))


def _stored(codes: Tensor, low_bits: int) -> Tensor:
    values = codes.contiguous().numpy()
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, _MEMORY_LEVEL, zlib.Z_HUFFMAN_ONLY)
    leading, low = [], []
    for begin in range(0, len(values), _STRETCH):
        part = values[begin : begin + _STRETCH]
        leading.append(packer.compress((part >> low_bits).astype(np.uint8).data))
        low.append(_packed(part, low_bits))
    leading.append(packer.flush())
    return torch.from_numpy(np.frombuffer(bytearray(b"".join([*leading, *low])), dtype=np.uint8))


def _packed(values: np.ndarray[tuple[int], np.dtype[np.uint16]], low_bits: int) -> bytes:
    places = np.arange(low_bits, dtype=np.uint16)
    bits = ((values[:, None] >> places) & 1).astype(np.uint8)
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def _codes_of(held: Tensor, low_bits: int, numel: int) -> Tensor:
    low_bytes = -(-numel * low_bits // 8)
    coded = len(held) - low_bytes
    if numel > _MOST_A_BYTE * coded:
        raise FormatError(f"{numel} coordinates are stored in {len(held)} bytes, which cannot hold so many")
    leading = np.frombuffer(unzip(held[:coded], numel, "codes"), dtype=np.uint8)
    if len(leading) != numel:
        raise FormatError(f"{len(leading)} codes are stored of {numel} coordinates")
    codes, low = np.empty(numel, dtype=np.uint16), held[coded:].numpy()
    places = np.arange(low_bits, dtype=np.uint16)
    for begin in range(0, numel, _STRETCH):
        part = slice(begin, min(begin + _STRETCH, numel))
        count = part.stop - begin
        own = low[begin * low_bits // 8 : -(-part.stop * low_bits // 8)]
        bits = np.unpackbits(own, count=count * low_bits, bitorder="little").reshape(count, low_bits)
        codes[part] = leading[part].astype(np.uint16) << np.uint16(low_bits)
        codes[part] |= (bits.astype(np.uint16) << places).sum(axis=1, dtype=np.uint16)
    return torch.from_numpy(codes)
