"""Bar charts as numbers: where each bar of a histogram stands in the page's drawing; the template writes the SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 640.0, 140.0  #: of the drawing, in its own units


class Bar(NamedTuple):
    """One count: a rectangle of the drawing, the y axis pointing down."""

    place: int  #: in the order of the counts
    x: float
    y: float
    width: float
    height: float
    coordinates: int


def bars(counts: Sequence[int]) -> list[Bar]:
    """Bars side by side over the whole width, the largest count as high as the drawing; two decimals."""
    most, width = max([*counts, 1]), WIDTH / max(len(counts), 1)
    heights = [HEIGHT * count / most for count in counts]
    return [
        Bar(place, round(place * width, 2), round(HEIGHT - height, 2), round(0.9 * width, 2), round(height, 2), count)
        for place, (count, height) in enumerate(zip(counts, heights, strict=True))
    ]
