"""Updates operation by operation, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.slips import Step
from guarded_moments.oracle.tracing import Operation, trace_update
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.op_models import OpModel

_FIRST, _LATER = "<- the first that differs", "*"


def one_update(step: Step, m: float, v: float, g: float) -> list[str]:
    """The trace of an update; its last line is the update.

    Args:
        step: what is computed.
        m: first moment, binary32.
        v: second moment, binary32.
        g: the gradient as it enters the moments, binary32.
    """
    return _columns([(o.name, f"= {o.formula}", shown(o.result)) for o in _traced(step, m, v, g)])


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
    mark = _FIRST
    for a, b in zip(left, right, strict=True):
        cells = shown(a.result), shown(b.result)
        differs = cells[0] != cells[1]
        rows.append((a.name, f"= {a.formula}", *cells, mark if differs else ""))
        mark = _LATER if differs else mark
    return _columns(rows)


def two_steps(asked: Step, row: Sequence[float], other: Step, other_row: Sequence[float], title: str) -> list[str]:
    """The traces of one update done in two ways, side by side, with a mark where they part.

    Args:
        asked: the op model's.
        row: `m, v, g`, binary32 values.
        other: the other way.
        other_row: what that takes for `m, v, g`.
        title: what to call it.
    """
    rows = [("the op model", "", title, "", "")]
    mark = _FIRST
    for a, b in _aligned(_traced(asked, *row), _traced(other, *other_row)):
        cells = (*_cells(a), *_cells(b))
        differs = cells[1] != cells[3]
        rows.append((*cells, mark if differs else ""))
        mark = _LATER if differs else mark
    return _columns(rows)


def _aligned(
    left: Sequence[Operation], right: Sequence[Operation]
) -> Iterator[tuple[Operation | None, Operation | None]]:
    """Operations with the same result beside each other, the others in order between them."""
    results = [[shown(operation.result) for operation in side] for side in (left, right)]
    for _, a, b, c, d in SequenceMatcher(a=results[0], b=results[1], autojunk=False).get_opcodes():
        yield from zip_longest(left[a:b], right[c:d])


def _cells(operation: Operation | None) -> tuple[str, str]:
    if operation is None:
        return "", ""
    return f"{operation.name} = {operation.formula}", shown(operation.result)


def _traced(step: Step, m: float, v: float, g: float) -> list[Operation]:
    return trace_update(step.model, step.options, step.scalars, m, v, g, step.arithmetic)


def shown(value: float | Tensor) -> str:
    """A binary32 value with its bits; the exact product of two, which is none, in hexadecimal."""
    number = float(value)
    if number == float(torch.tensor(number, dtype=torch.float32)) or number != number:  # noqa: PLR0124 - NaN
        return hex_of(number)
    return f"{number.hex()} exactly"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
