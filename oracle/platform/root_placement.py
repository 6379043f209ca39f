"""Whether the square root of a value depends on where it stands: place, neighbours, the size and layout of the tensor.

A vector library runs whole vectors, leftovers, unaligned beginnings and the share of each thread through different
code.  The sweep over all inputs sees one of these; this is evidence, by samples, that it stands for all.

Claimed: the counts.  Not claimed: that places which were not tried agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from guarded_moments.oracle.platform.root_sweep import INFINITY, Root

SMALL = 70  #: every size up to this
OFFSETS = 16  #: elements of a cache line: every alignment that a float32 can have
_LARGE = (4095, 65_543, 1_000_003)
_THREADS = (1, 2, 3, 8)
_SAMPLE = 1 << 18
_WITHOUT_RANGE_REDUCTION = (0x3F800000, 0x40800000)  #: bits of [1, 4)


@dataclass(frozen=True)
class Placement:
    """How many roots were asked for in another place, and how many differ from those of the sweep."""

    roots: int
    differing: int
    first_difference: str | None  #: the place
    tried: str  #: in words


def placement(root: Root, rng: np.random.Generator) -> Placement:
    """Ask `root`, which must accept tensors of any layout, for the roots of one sample in many places."""
    bits = np.hstack((rng.integers(0, INFINITY, size=_SAMPLE), rng.integers(*_WITHOUT_RANGE_REDUCTION, size=_SAMPLE)))
    values = torch.from_numpy(bits.astype(np.uint32).view(np.float32))
    expected = root(values)
    roots, differing, first = 0, 0, None
    for place, asked, chosen in _places(values, rng):
        answer = root(asked).reshape(-1)
        wrong = int((answer.view(torch.int32) != expected[chosen].view(torch.int32)).sum())
        roots, differing = roots + asked.numel(), differing + wrong
        first = place if wrong and first is None else first
    return Placement(
        roots=roots,
        differing=differing,
        first_difference=first,
        tried=(
            f"sizes 1 to {SMALL} and {', '.join(f'{size:,}' for size in _LARGE)}, each of {OFFSETS} alignments, "
            f"{', '.join(map(str, _THREADS))} threads, transposed, strided, expanded and 0-d"
        ),
    )


def _places(values: Tensor, rng: np.random.Generator) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Places: in words, the tensor to ask for, and which of the values its elements are, in its logical order."""
    threads = torch.get_num_threads()
    buffer = torch.empty(max(_LARGE) + OFFSETS)
    try:
        for number in _THREADS:
            torch.set_num_threads(number)
            for size in (*range(1, SMALL + 1), *_LARGE) if number == 1 else _LARGE:
                for offset in range(OFFSETS if size < _LARGE[-1] else 2):
                    chosen = torch.from_numpy(rng.integers(values.numel(), size=size))
                    place = buffer[offset : offset + size]
                    place.copy_(values[chosen])
                    yield f"size {size}, offset {offset}, {number} threads", place, chosen
    finally:
        torch.set_num_threads(threads)
    rows, columns = 301, 517
    chosen = torch.from_numpy(rng.integers(values.numel(), size=(rows, columns)))
    matrix = values[chosen]
    yield "transposed", matrix.t(), chosen.t().reshape(-1)
    yield "every second column", matrix[:, ::2], chosen[:, ::2].reshape(-1)
    yield "part of each row", matrix[:, 3:500], chosen[:, 3:500].reshape(-1)
    yield "expanded", matrix[:1].expand(50, columns), chosen[:1].expand(50, columns).reshape(-1)
    for index in chosen[0, :100]:
        yield "0-d", values[index], index.reshape(1)
