"""What a vector is: a group of questions with common parameters, each with its answer and the flags that explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

VERSION = 1


class VectorError(Exception):
    """Files that are no vectors or no answers; the text is one line."""


class Kind(NamedTuple):
    """The columns of a kind of question, with the hexadecimal digits of each."""

    inputs: dict[str, int]
    answers: dict[str, int]
    requirements: tuple[str, ...]


#: Answers of `guard` are one digit, 0 or 1; those of `first_update` 16 digits where the group is of an exact product.
KINDS = {
    "decode": Kind({"m_code": 2, "v_code": 2}, {"m": 8, "v": 8}, ("DEC-1", "DEC-2", "DEC-3")),
    "encode": Kind({"m": 8, "v": 8}, {"m_code": 2, "v_code": 2}, ("ENC-1", "ENC-2", "ENC-4")),
    "decode_ratio": Kind({"m_code": 2, "v_code": 2}, {"m": 8, "v": 8}, ("RAT-1",)),
    "encode_ratio": Kind({"m": 8, "v": 8}, {"m_code": 2, "v_code": 2}, ("RAT-2", "RAT-3")),
    "guard": Kind({"m": 8, "v": 8, "m_hat": 8, "v_hat": 8}, {"accept": 1}, ("GRD-1", "GRD-2", "GRD-6")),
    "first_update": Kind({"m": 8, "v": 8, "g": 8}, {"update": 8}, ("OPS-1", "OPS-2")),
}


class Flag(NamedTuple):
    """Why a vector is there."""

    effect: str  #: what happens to a backend that gets it wrong
    requirement: str


FLAGS = {
    "Ordinary": Flag("A value as training has it.", "OPS-1"),
    "Telling": Flag("An update that a common slip changes: a product fused or not, a constant rounded twice.", "OPS-1"),
    "Zero": Flag("A zero, of either sign: a coordinate that never had a gradient must not start to move.", "ENC-2"),
    "Subnormal": Flag("Flushed to zero by -ffast-math and by many devices; moments decay through them.", "OPS-2"),
    "Infinite": Flag("Stored exactly, and computed with as IEEE 754 says.", "GRD-2"),
    "NaN": Flag("False in every comparison: a guard written as not (bound > tau) accepts it.", "GRD-2"),
    "NegativeSecondMoment": Flag("No state of Adam: the root of its magnitude would be.", "GRD-2"),
    "Code": Flag(
        "One of the 256 bytes; files move between devices, and a level one ulp off is another state.", "DEC-1"
    ),
    "Escape": Flag("The code that would be minus zero: its pair is stored exactly, and it decodes to zero.", "DEC-2"),
    "NearThreshold": Flag(
        "At most two ulps from the middle of two levels: a binary32 logarithm goes either way.", "ENC-1"
    ),
    "OutsideGrid": Flag("Beyond the ends: an index that wraps turns the largest moment into the smallest.", "ENC-4"),
    "NearMultiple": Flag(
        "At most an ulp from the middle of two multiples, and beside its decoded root, not its own.", "RAT-2"
    ),
    "Quantised": Flag("A state and what the nearest codes make of it: what a codec will ask its guard.", "GRD-6"),
    "NearTolerance": Flag("On a line of pairs that ends at the tolerance: before its end, or as far beyond.", "GRD-1"),
}


@dataclass(frozen=True)
class Group:
    """Questions with common parameters."""

    kind: str
    name: str  #: unique within its kind
    request: str  #: the line of the pipe that asks them, without the count
    about: str  #: the parameters in words
    inputs: dict[str, Tensor]  #: uint8 or float32, each of shape (n,)
    answers: dict[str, Tensor]  #: uint8, float32 or float64; for a guard int8: 0 must reject, 1 may accept
    flags: tuple[tuple[str, ...], ...]  #: of each question

    @property
    def count(self) -> int:
        """Questions."""
        return len(self.flags)


def digits(tensor: Tensor) -> list[str]:
    """The bits of each element in hexadecimal; a guard's verdict as one digit."""
    if tensor.dtype is torch.int8:
        return [str(int(value)) for value in tensor]
    integers = {torch.uint8: (torch.uint8, 2), torch.float32: (torch.int32, 8), torch.float64: (torch.int64, 16)}
    as_integer, width = integers[tensor.dtype]
    mask = (1 << 4 * width) - 1
    return [f"{int(value) & mask:0{width}x}" for value in tensor.contiguous().view(as_integer).tolist()]


def from_digits(texts: list[str], dtype: torch.dtype) -> Tensor:
    """The inverse of `digits`.

    Raises:
        ValueError: a text is not of so many hexadecimal digits.
    """
    width = 1 if dtype is torch.int8 else 2 * dtype.itemsize
    if any(len(text) != width for text in texts) or (dtype is torch.int8 and set(texts) - {"0", "1"}):
        raise ValueError
    if dtype is torch.int8:
        return torch.tensor([int(text) for text in texts], dtype=torch.int8)
    content = b"".join(bytes.fromhex(text)[::-1] for text in texts)
    return torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
