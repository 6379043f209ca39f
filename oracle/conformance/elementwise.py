"""Whether an answer depends on anything but its own element: on the size, the place, the stride, the neighbours.

The backend is its own judge: what it answers for an element of a long contiguous tensor it must answer for that element
anywhere.  So no oracle is needed, and none can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import same_bits
from guarded_moments.reference.floats import hex_of

#: Around every vector length, and around the size from which 8-bit optimizers work in blocks.
SIZES = (*range(71), 255, 256, 257, 4095, 4096, 4097)
LONGEST = SIZES[-1]
_SMALL = 70  #: sizes up to which every layout is tried

#: From the inputs, each of shape (n,), to the answers, each of shape (n,).
Operation = Callable[..., Sequence[Tensor]]


def _layouts(columns: Sequence[Tensor], size: int) -> Iterator[tuple[str, int, list[Tensor]]]:
    """The layout in words, the place of its first element in the whole, and the inputs laid out so."""
    yield "contiguous", 0, [column[:size].clone() for column in columns]
    last = LONGEST - size
    yield "the end of a longer tensor", last, [column[last:] for column in columns]
    if size <= _SMALL:
        yield "unaligned, one element in", 1, [torch.cat([column[:1], column])[2 : size + 2] for column in columns]
        yield "every other element of a tensor", 0, [_strided(column[:size], 2) for column in columns]
        yield "a column of a matrix", 0, [_strided(column[:size], 7) for column in columns]


def _strided(values: Tensor, stride: int) -> Tensor:
    wide = torch.zeros(len(values) * stride, dtype=values.dtype)
    wide[::stride] = values
    return wide[::stride]


def require_elementwise(
    operation: Operation, columns: Sequence[Tensor], inputs: Sequence[str], outputs: Sequence[str], about: str
) -> None:
    """Fail with the smallest tensor in which an element's answer is another.

    Args:
        operation: of the backend.
        columns: its inputs, each of shape (LONGEST,).
        inputs: names of the columns.
        outputs: names of the answers.
        about: what the call was, for the finding.
    """
    whole = operation(*columns)
    for size in SIZES:
        for layout, first, given in _layouts(columns, size):
            answers = operation(*given)
            for name, expected, answer in zip(outputs, whole, answers, strict=True):
                right = expected[first : first + size]
                wrong = ~_same(right, answer)
                if bool(wrong.any()):
                    at = int(wrong.nonzero()[0])
                    element = [_shown(column[at]) for column in given]
                    raise NonConformance(
                        f"{name} depends on where its element is: element {at} of {size} has another answer there",
                        f"call    {about}",
                        f"layout  {layout}; {int(wrong.sum())} of {size} elements have another answer",
                        *(f"{key:6}  {value}" for key, value in zip(inputs, element, strict=True)),
                        f"here    {_shown(answer[at])}",
                        f"alone   {_shown(right[at])}, in a contiguous tensor of {LONGEST}",
                    )


def _same(a: Tensor, b: Tensor) -> Tensor:
    return same_bits(a.contiguous(), b.contiguous()) if a.dtype.is_floating_point else a == b


def _shown(value: Tensor) -> str:
    if value.dtype is torch.uint8:
        return f"0x{int(value):02x}"
    return str(bool(value)) if value.dtype is torch.bool else hex_of(float(value))
