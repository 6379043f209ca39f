"""Other libraries' 8-bit quantisation of both moments, which nothing guards: times to put beside ours.

Neither is installed with this package; the extra `bench` does it.  Both are used as their optimizers use them, with the
blocks that these choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import imported


class Peer(NamedTuple):
    """Jobs over one pair of moments."""

    encode: Callable[[], object]
    decode: Callable[[], object]


def _bitsandbytes(m: Tensor, v: Tensor) -> Peer:
    functional = imported("bitsandbytes.functional")
    maps = [functional.create_dynamic_map(signed=signed) for signed in (True, False)]
    held: list[Any] = []

    def encode() -> None:
        held[:] = [
            functional.quantize_blockwise(x, code=code, blocksize=256) for x, code in zip((m, v), maps, strict=True)
        ]

    encode()
    return Peer(encode, lambda: [functional.dequantize_blockwise(codes, form) for codes, form in held])


def _torchao(m: Tensor, v: Tensor) -> Peer:
    made = imported("torchao.optim").AdamW8bit([torch.nn.Parameter(torch.zeros_like(m))])
    buffers = [made._new_buffer(m, signed) for signed in (True, False)]  # noqa: SLF001 - its only name

    def encode() -> None:
        for buffer, x in zip(buffers, (m, v), strict=True):
            buffer.copy_(x)

    encode()
    return Peer(encode, lambda: [buffer.dequantize() for buffer in buffers])


#: Package, and how its jobs are made.
PEERS: Mapping[str, Callable[[Tensor, Tensor], Peer]] = MappingProxyType(
    {"bitsandbytes": _bitsandbytes, "torchao": _torchao}
)
