"""Codecs: how a pair of moments becomes bytes and back."""

from guarded_moments.reference.codecs.grids import LogGrid
from guarded_moments.reference.codecs.log8 import Log8

__all__ = ["Log8", "LogGrid"]
