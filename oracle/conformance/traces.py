"""Updates operation by operation, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from guarded_moments.oracle.tracing import trace_update
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.op_models import OpModel


def one_update(
    model: OpModel, options: StepOptions, scalars: Scalars[float], m: float, v: float, g: float
) -> list[str]:
    """The trace of an update; its last line is the update.

    Args:
        model: the op model.
        options: the choices that are made once per tensor.
        scalars: the kernel's constants.
        m: first moment, binary32.
        v: second moment, binary32.
        g: the gradient as it enters the moments, binary32.
    """
    operations = trace_update(model, options, scalars, m, v, g)
    return _columns([(o.name, f"= {o.formula}", hex_of(o.result)) for o in operations])


def two_updates(
    model: OpModel,
    options: StepOptions,
    scalars: Scalars[float],
    native: tuple[float, float],
    recovered: tuple[float, float],
    g: float,
) -> list[str]:
    """The traces of the native and the recovered update side by side, with a mark where they differ.

    Args:
        model: the op model.
        options: the choices that are made once per tensor.
        scalars: the kernel's constants.
        native: both moments, binary32.
        recovered: both moments, binary32.
        g: the gradient, binary32.
    """
    rows = [("", "", "native", "recovered", "")]
    left, right = (trace_update(model, options, scalars, *state, g) for state in (native, recovered))
    for a, b in zip(left, right, strict=True):
        shown = hex_of(a.result), hex_of(b.result)
        rows.append((a.name, f"= {a.formula}", *shown, "" if shown[0] == shown[1] else "*"))
    return _columns(rows)


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
