"""What a stored coordinate costs, everything counted: codes, escapes, parameters of codecs, metadata.

Claimed: the sum is the size of the `.gmc` file, but for the file's own framing, a few hundred bytes, and for what lies
beside the optimizers' states in a larger checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from guarded_moments.reference.checkpoint import file_format, packing
from guarded_moments.reference.checkpoint.optimizer_state import LARGEST
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor


@dataclass(frozen=True)
class BitRate:
    """Stored bits per coordinate, by what they are for; native float32 moments are 64, with amsgrad 96."""

    codes: float
    escapes: float  #: the exact pairs; which coordinates they belong to costs nothing, their codes say it
    parameters: float  #: grids and scales that are stored as arrays
    metadata: float  #: descriptions of the tensors, single grids among them, and all else in the optimizers' states

    @property
    def total(self) -> float:
        """All of it."""
        return self.codes + self.escapes + self.parameters + self.metadata


def bit_rate(state: GuardedState) -> BitRate:
    """Of a whole state; tensors that are kept whole count as metadata, where their bytes are."""
    coordinates = max(1, state.coordinates)
    sizes = [_bytes_of(tensor) for tensor in state.tensors]
    codes, escapes, parameters = (8 * sum(part) / coordinates for part in zip((0, 0, 0), *sizes, strict=True))
    metadata = len(packing.compress_description(packing.description(state))) + file_format.skeleton_bytes(state)
    return BitRate(codes, escapes, parameters, 8 * metadata / coordinates)


def native_bits(state: GuardedState) -> int:
    """What the moments of a whole state take in float32; with amsgrad there are three of a coordinate."""
    thirds = sum(tensor.numel for tensor in state.tensors if LARGEST in state.entry_of(tensor))
    return 64 * state.coordinates + 32 * thirds


def tensor_bit_rate(tensor: GuardedTensor) -> float:
    """Bits per coordinate of one guarded tensor, without its share of the metadata."""
    return 8 * sum(_bytes_of(tensor)) / tensor.numel


def _bytes_of(tensor: GuardedTensor) -> tuple[int, int, int]:
    arrays = tensor.codec.parameter_tensors().values()
    return sum(codes.nbytes for codes in tensor.stored), tensor.escapes.nbytes, sum(array.nbytes for array in arrays)
