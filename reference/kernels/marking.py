"""Marks of a block's coordinates, uint8, which are zero for most: whether there are any others, and where.

Where a few in a hundred are marked a processor cannot foresee which, so no branch depends on a mark: eight at a time
are taken for a word, the words that are not zero are listed, and then what is marked in those.

Claimed: a list has the places of all that is marked, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

_WORD = 8  #: marks of a word


class Room(NamedTuple):
    """Memory for the marks of a block and what is made of them."""

    marks: Any  #: uint8, (block,); those behind the end of a shorter block are zero
    words: Any  #: the same memory, uint64
    marked_words: Any  #: int64
    places: Any  #: int64, (block,)


@cache
def make_room(block: int) -> Callable[[], Room]:
    """Build `room()`, compiled, for blocks of so many coordinates, a multiple of 8."""

    @numba.njit(error_model="numpy")
    def room():  # type: ignore[no-untyped-def]  # noqa: ANN202 - typed by numba
        marks = np.zeros(block, np.uint8)
        return Room(marks, marks.view(np.uint64), np.empty(block // _WORD, np.int64), np.empty(block, np.int64))

    result: Callable[[], Room] = room
    return result


@numba.njit(error_model="numpy")
def any_marked(marks: Any) -> bool:  # noqa: ANN401 - typed by numba
    """Whether a mark is not zero."""
    found = np.uint8(0)
    for i in range(len(marks)):
        found |= marks[i]
    return bool(found != 0)


@numba.njit(error_model="numpy")
def list_marked(room: Any) -> Any:  # noqa: ANN401 - as above
    """The places of marks that are not zero: a view of `room.places`."""
    words = 0
    for word in range(len(room.words)):
        room.marked_words[words] = word
        words += room.words[word] != 0
    count = 0
    for word in room.marked_words[:words]:
        for i in range(_WORD * word, _WORD * word + _WORD):
            room.places[count] = i
            count += room.marks[i] != 0
    return room.places[:count]


class EscapeMarks(NamedTuple):
    """Loops over the first moment's codes."""

    count: Callable[[Any], int]  #: escapes
    add: Callable[[Any, Any], None]  #: mark the escapes, besides what is marked


@cache
def make_escape_marks(escape: np.unsignedinteger[Any]) -> EscapeMarks:
    """Build the loops for a codec's escape."""

    @numba.njit(error_model="numpy", nogil=True)
    def count(codes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by numba
        found = 0
        for i in range(len(codes)):
            found += codes[i] == escape
        return found

    @numba.njit(error_model="numpy")
    def add(codes, marks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        for i in range(len(codes)):
            marks[i] |= np.uint8(codes[i] == escape)

    return EscapeMarks(count, add)
