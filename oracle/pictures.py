"""Pictures with matplotlib, which is optional: what every command that draws one needs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from guarded_moments.reference.errors import UnsupportedError

#: The types of pictures, by the ending of the file's name; matplotlib writes others too, which nobody asked for.
KINDS = (".png", ".svg", ".pdf")


def require(path: Path) -> None:
    """Refuse, before any work, a picture that could not be drawn.

    Raises:
        UnsupportedError: matplotlib is missing, or the name says no type of picture.
    """
    if path.suffix not in KINDS:
        raise UnsupportedError(f"{path}: a picture needs a name that ends in {', '.join(KINDS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UnsupportedError(
            "--plot needs matplotlib, which is not installed: pip install 'guarded-moments[plot]'"
        ) from None


def figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """A figure of that many inches and its axes, as many side by side as asked, with one scale of ordinates.

    It is drawn off screen, and given back to the collector when dropped.
    """
    module = importlib.import_module("matplotlib.figure")
    drawn = module.Figure(figsize=(width, height), layout="constrained")
    return drawn, drawn.subplots(1, columns, sharey=True)
