"""Where two state_dicts first differ, structurally and bit for bit.

Claimed: None means that both hold the same types, keys in the same order, numbers, strings, and tensors of the same
dtype, shape, strides and bits (NaN payloads included; a NaN equals itself).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def first_difference(a: object, b: object, skip: frozenset[tuple[Any, ...]] = frozenset()) -> str | None:
    """The path of the first difference, such as `state[0]['step']`, or None.

    Args:
        a: one structure of dictionaries, lists, tuples, tensors and plain values.
        b: the other.
        skip: paths, as tuples of keys, that are not compared.
    """
    path = _difference(a, b, (), skip)
    return None if path is None else _in_words(path)


def _in_words(path: tuple[Any, ...]) -> str:
    first, *rest = path or ("the whole",)
    return str(first) + "".join(f"[{key!r}]" for key in rest)


def _difference(
    a: object, b: object, path: tuple[Any, ...], skip: frozenset[tuple[Any, ...]]
) -> tuple[Any, ...] | None:
    if path in skip:
        return None
    if type(a) is not type(b):
        return path
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if list(a) != list(b):
            return (*path, next((key for key in (*a, *b) if key not in a or key not in b), "order of keys"))
        pairs = [(key, a[key], b[key]) for key in a]
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return path
        pairs = [(index, x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if _same_value(a, b) else path
    return next((found for key, x, y in pairs if (found := _difference(x, y, (*path, key), skip)) is not None), None)


def _same_value(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.stride() == b.stride() and same_bits(a, b)
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    return bool(a == b)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one dtype, one shape and the same bits, NaN payloads included."""
    if a.dtype is not b.dtype or a.shape != b.shape:
        return False
    return torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)
