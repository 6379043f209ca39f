"""An Adam update or step, operation by operation: the one step, run in an arithmetic that writes down what it does.

Claimed: the trace is of the same source as the reference, `adam.make_update` or `make_step`; values are those of the
arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from guarded_moments.reference.adam import Scalars, StepOptions, StepResult, make_step, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.arithmetic.protocol import Arithmetic
from guarded_moments.reference.op_models import OpModel


class Operation(NamedTuple):
    """One rounded operation."""

    name: str  #: what later operations call its result: `t3`
    formula: str  #: `fma(w, t1, m)`
    result: float  #: a binary32 value, or the exact product of two


@dataclass(frozen=True)
class Traced:
    """A binary32 scalar and what a trace calls it."""

    value: Any  #: a 0-d float32 array, or the exact product of two in float64
    name: str  #: `m`, `-m`, or `t3` for the result of the third operation


@final
class _Tracing:
    """An arithmetic of arrays on named scalars, keeping a record."""

    def __init__(self, op: Arithmetic[Any] | None = None) -> None:
        self._op: Arithmetic[Any] = NumpyBinary32() if op is None else op
        self.operations: list[Operation] = []

    def named(self, name: str, value: float) -> Traced:
        return Traced(np.asarray(np.float32(value)), name)

    def constant(self, value: float) -> Traced:
        return self.named(f"{value:g}", value)

    def _record(self, formula: str, value: Any) -> Traced:  # noqa: ANN401 - NumPy's 0-d results are arrays or scalars
        name = f"t{len(self.operations) + 1}"
        self.operations.append(Operation(name, formula, float(value)))
        return Traced(np.asarray(value), name)

    def add(self, a: Traced, b: Traced) -> Traced:
        return self._record(f"{a.name} + {b.name}", self._op.add(a.value, b.value))

    def sub(self, a: Traced, b: Traced) -> Traced:
        return self._record(f"{a.name} - {b.name}", self._op.sub(a.value, b.value))

    def mul(self, a: Traced, b: Traced) -> Traced:
        return self._record(f"{a.name} * {b.name}", self._op.mul(a.value, b.value))

    def product(self, a: Traced, b: Traced) -> Traced:
        return self._record(f"{a.name} * {b.name} exactly", self._op.product(a.value, b.value))

    def div(self, a: Traced, b: Traced) -> Traced:
        return self._record(f"{a.name} / {b.name}", self._op.div(a.value, b.value))

    def fma(self, a: Traced, b: Traced, c: Traced) -> Traced:
        return self._record(f"fma({a.name}, {b.name}, {c.name})", self._op.fma(a.value, b.value, c.value))

    def sqrt(self, a: Traced) -> Traced:
        return self._record(f"sqrt({a.name})", self._op.sqrt(a.value))

    def platform_sqrt(self, a: Traced) -> Traced:
        return self._record(f"torch.sqrt({a.name})", self._op.platform_sqrt(a.value))

    def negate(self, a: Traced) -> Traced:
        return Traced(self._op.negate(a.value), f"-{a.name}")

    def select_less(self, a: Traced, b: Traced, if_less: Traced, otherwise: Traced) -> Traced:
        return if_less if a.value < b.value else otherwise

    def select_nan(self, a: Traced, if_nan: Traced, otherwise: Traced) -> Traced:
        return if_nan if np.isnan(a.value) else otherwise


def trace_update(
    model: OpModel,
    options: StepOptions,
    scalars: Scalars[float],
    m: float,
    v: float,
    g: float,
    arithmetic: Arithmetic[Any] | None = None,
) -> list[Operation]:
    """The rounded operations of one update, in order; the last one's result is the update.

    Args:
        model: the op model.
        options: per-tensor choices.
        scalars: the kernel's constants.
        m: first moment, a binary32 value.
        v: second moment, a binary32 value.
        g: the gradient as it enters the moments, a binary32 value.
        arithmetic: of float32 arrays; `NumpyBinary32` by default.
    """
    op = _Tracing(arithmetic)
    make_update(op, model, options)(op.named("m", m), op.named("v", v), op.named("g", g), _constants(op, scalars))
    return op.operations


def trace_step(
    model: OpModel, options: StepOptions, scalars: Scalars[float], inputs: Mapping[str, float]
) -> tuple[list[Operation], StepResult[Traced]]:
    """The rounded operations of one whole step, in order, and its results under the names the operations gave them.

    Args:
        model: the op model.
        options: per-tensor choices.
        scalars: the kernel's constants.
        inputs: binary32 values of `p`, `g`, `m`, `v` and `vmax`, which is read with amsgrad only.
    """
    op = _Tracing()
    p, g, m, v, v_max = (op.named(name, inputs[name]) for name in ("p", "g", "m", "v", "vmax"))
    with np.errstate(all="ignore"):
        result = make_step(op, model, options)(p, g, m, v, v_max, _constants(op, scalars))
    return op.operations, result


def _constants(op: _Tracing, scalars: Scalars[float]) -> Scalars[Traced]:
    return Scalars(*(op.named(name, value) for name, value in scalars._asdict().items()))
