"""Files of format version 1, which still are read: log8 alone, three arrays for each tensor, all else in the header.

    "<i>.m_codes", "<i>.v_codes"        uint8, (numel,)
    "<i>.escapes"                       float32, (escapes, 2)

A grid was written as its lowest exponent and its step, in octaves; the skeleton was a bare state_dict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.layouts import group_of
from guarded_moments.reference.checkpoint.packing import assembled
from guarded_moments.reference.checkpoint.state import GuardedTensor, KeptTensor
from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.errors import FormatError, UnsupportedError


def unpacked(
    description: Mapping[str, Any], tensors: Mapping[str, Tensor], skeleton: Mapping[str, Any]
) -> tuple[tuple[GuardedTensor, ...], tuple[KeptTensor, ...]]:
    """The guarded and the kept tensors; raises as `packing.unpacked`."""
    guarded = tuple(_tensor(entry, i, tensors, skeleton) for i, entry in enumerate(description["tensors"]))
    return guarded, tuple(KeptTensor(*entry) for entry in description["kept"])


def _tensor(
    entry: Mapping[str, Any], index: int, tensors: Mapping[str, Tensor], skeleton: Mapping[str, Any]
) -> GuardedTensor:
    if entry["codec"] != Log8.name:
        raise UnsupportedError(f"{entry['where']}: codec {entry['codec']!r} is none of format version 1")
    (m_low, m_step), (v_low, v_step) = entry["grids"]
    codec = Log8(LogGrid(m_low, m_step, M_LEVELS), LogGrid(v_low, v_step, V_LEVELS))
    m_codes, v_codes, escapes = (tensors[f"{index}.{part}"] for part in ("m_codes", "v_codes", "escapes"))
    numel = math.prod(entry["shape"])
    if not (
        m_codes.dtype is v_codes.dtype is torch.uint8
        and escapes.dtype is torch.float32
        and m_codes.shape == v_codes.shape == (numel,)
        and escapes.shape[1:] == (2,)
    ):
        raise FormatError(f"{entry['where']}: its codes and escapes do not fit its shape {tuple(entry['shape'])}")
    group_of(skeleton, (), entry["key"])  # there must be one
    return assembled({**entry, "place": ()}, codec, (m_codes, v_codes), escapes, skeleton)
