"""How many roundings stand between a state and each quantity of a step, counted on the step itself.

The builders of `adam` run in an arithmetic whose values are sets of operations: each rounded operation adds itself to
what its operands are made of.  So an operation that two paths share counts once, and no table is kept beside the code.

Claimed: the counts are of the very source that computes the step.  A platform's root counts as one, although it may err
by three half units in the last place.
"""

from __future__ import annotations

from typing import NamedTuple, final

from guarded_moments.reference.adam import (
    Scalars,
    StepOptions,
    make_denominator,
    make_moments,
    make_root,
    make_update,
)
from guarded_moments.reference.op_models import OpModel

#: The rounded operations that a value depends on.
Made = frozenset[int]
_INPUT: Made = frozenset()


class RoundingCounts(NamedTuple):
    """Rounded operations from the moments, the gradient and the constants, all on the way included."""

    first_moment: int
    second_moment: int
    denominator: int  #: with the second moment and its root
    update: int  #: with both moments; before the parameter is rounded


@final
class _Counting:
    """Sets of operations: `Arithmetic[frozenset[int]]`."""

    def __init__(self) -> None:
        self._operations = 0

    def constant(self, value: float) -> Made:  # noqa: ARG002 - the protocol's signature: every constant is exact
        return _INPUT

    def _rounded(self, *operands: Made) -> Made:
        self._operations += 1
        return _INPUT.union(*operands, {self._operations})

    def add(self, a: Made, b: Made) -> Made:
        return self._rounded(a, b)

    def sub(self, a: Made, b: Made) -> Made:
        return self._rounded(a, b)

    def mul(self, a: Made, b: Made) -> Made:
        return self._rounded(a, b)

    def product(self, a: Made, b: Made) -> Made:
        return a | b

    def div(self, a: Made, b: Made) -> Made:
        return self._rounded(a, b)

    def fma(self, a: Made, b: Made, c: Made) -> Made:
        return self._rounded(a, b, c)

    def sqrt(self, a: Made) -> Made:
        return self._rounded(a)

    def platform_sqrt(self, a: Made) -> Made:
        return self._rounded(a)

    def negate(self, a: Made) -> Made:
        return a

    def select_less(self, a: Made, b: Made, if_less: Made, otherwise: Made) -> Made:
        return a | b | if_less | otherwise

    def select_nan(self, a: Made, if_nan: Made, otherwise: Made) -> Made:
        return a | if_nan | otherwise


def rounding_counts(model: OpModel, options: StepOptions) -> RoundingCounts:
    """Count the roundings of `model`, for the gradient as it enters the moments."""
    op = _Counting()
    constants = Scalars(*(_INPUT for _ in Scalars._fields))
    first, second = make_moments(op, model, options)(_INPUT, _INPUT, _INPUT, constants)
    denominator = make_denominator(op, model)(make_root(op, model)(second), constants)
    update = make_update(op, model, options)(_INPUT, _INPUT, _INPUT, constants)
    return RoundingCounts(len(first), len(second), len(denominator), len(update))
