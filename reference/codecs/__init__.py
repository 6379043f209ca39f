"""Codecs: how a pair of moments becomes two codes and back."""

from collections.abc import Mapping
from types import MappingProxyType

from guarded_moments.reference.codecs.bf16 import BFloat16
from guarded_moments.reference.codecs.blockwise8 import Blockwise8
from guarded_moments.reference.codecs.entropy import Entropy
from guarded_moments.reference.codecs.grids import FloatGrid, GridFamily, LogGrid
from guarded_moments.reference.codecs.joint import Joint
from guarded_moments.reference.codecs.lin8 import Lin8
from guarded_moments.reference.codecs.log8 import Log8
from guarded_moments.reference.codecs.protocol import Codec, Codes, Escaped
from guarded_moments.reference.codecs.ratio8 import Ratio8

#: Every codec by its name, the default first.
CODECS: Mapping[str, type[Codec]] = MappingProxyType(
    {codec.name: codec for codec in (Log8, Lin8, BFloat16, Blockwise8, Joint, Ratio8, Entropy)}
)

__all__ = [
    "CODECS",
    "BFloat16",
    "Blockwise8",
    "Codec",
    "Codes",
    "Entropy",
    "Escaped",
    "FloatGrid",
    "GridFamily",
    "Joint",
    "Lin8",
    "Log8",
    "LogGrid",
    "Ratio8",
]
