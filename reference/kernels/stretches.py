"""A tensor as stretches that are worked on one after the other or by several threads, none of which waits for another.

Claimed: the stretches of a tensor cover it, each place once; every exact pair goes with the stretch of its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from torch import Tensor

from guarded_moments.reference.codecs import Codes
from guarded_moments.reference.errors import FormatError

#: Coordinates of a stretch: what a thread takes at a time, and whose escapes are gathered in one buffer.
STRETCH = 1 << 19


def stretches(count: int) -> Iterator[slice]:
    """Of a tensor with so many coordinates, in order."""
    return (slice(begin, min(begin + STRETCH, count)) for begin in range(0, count, STRETCH))


def with_escapes(
    codes: Codes, count: Callable[[Any], int], escapes: Tensor, threads: int
) -> list[tuple[slice, Tensor]]:
    """Each stretch of a tensor with the exact pairs of its coordinates.

    Args:
        codes: of the tensor.
        count: of the first moment's codes where a pair is kept exactly.
        escapes: those pairs, (escapes, 2).
        threads: as in `mapped`.

    Raises:
        FormatError: there are more or fewer escapes than codes that stand for one.
    """
    marks, jobs, begin = codes.m.contiguous().numpy(), [], 0
    parts = list(stretches(len(marks)))
    counts = mapped(lambda stretch: int(count(marks[stretch])), [(stretch,) for stretch in parts], threads)
    for stretch, number in zip(parts, counts, strict=True):
        jobs.append((stretch, escapes[begin : begin + number]))
        begin += number
    if begin != len(escapes):
        raise FormatError(f"{begin} codes stand for exact pairs, of which there are {len(escapes)}")
    return jobs


def mapped(work: Callable[..., Any], jobs: list[tuple[Any, ...]], threads: int) -> list[Any]:
    """What `work` gives for each job, by so many threads."""
    if threads <= 1 or len(jobs) <= 1:
        return [work(*job) for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *zip(*jobs, strict=True)))


def bits(values: Tensor) -> Any:  # noqa: ANN401 - an array of numpy
    """The bits of float32 values, uint32: a view where the tensor is contiguous."""
    return values.contiguous().numpy().view(np.uint32)
