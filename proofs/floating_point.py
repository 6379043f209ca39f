"""The whole claim as one question to z3 in its theory of floating-point numbers, symbolic in all five values.

Native and recovered moments and the gradient are variables of a small format.  The Adam step (`adam.make_update`) is
run on them in that format, and the guard (`closed_form.make_deviation_bound`, with the constants of `small_formats` and
the inflation that `RoundingCount` counts) in a wider one.  The question is whether the guard accepts two states and
some gradient still moves their updates further apart than the tolerance; the claim is that none does.

Claimed: `decide` says PROVED only where z3 finds the question unsatisfiable within the limit, and a counterexample is
one of the op model itself, run again on numbers.  Trusted: z3's translation of floating-point operations to bits, and
its search.  This is a check on the theorem, not a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, final

import torch
import z3

from guarded_moments.proofs.small_formats import Setting, SmallFormat
from guarded_moments.proofs.verdicts import Verdict
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.floats import FloatFormat
from guarded_moments.reference.guard.closed_form import make_deviation_bound
from guarded_moments.reference.guard.constants import TINY, GuardConstants, counted_constants

#: More than twice what the hardest question that is asked takes (z3's ``rlimit``).
RESOURCE_LIMIT = 2_000_000_000
NAMES = ("m", "v", "m_hat", "v_hat", "g")
_NEAREST = z3.RNE()


@final
class FloatingPoint:
    """Terms of one floating-point sort, rounded to nearest: `Arithmetic` and `OrderedArithmetic` of z3 terms."""

    def __init__(self, fmt: FloatFormat) -> None:
        """Take the sort of a format."""
        self.sort = z3.FPSort(fmt.largest_exponent.bit_length() + 1, fmt.precision)
        self._smallest = float(fmt.smallest_normal)

    def constant(self, value: float) -> Any:  # noqa: ANN401 - z3 is published without types; so below
        """A number; TINY is the smallest normal one, which no root of the narrow format reaches."""
        return z3.FPVal(self._smallest if value == TINY else value, self.sort)

    def above(self, value: Fraction | float) -> Any:  # noqa: ANN401
        """The smallest number that is at least this."""
        return z3.simplify(z3.fpRealToFP(z3.RTP(), z3.RealVal(str(Fraction(value))), self.sort))

    def widened(self, term: Any) -> Any:  # noqa: ANN401
        """A term of a narrower sort, exactly."""
        return z3.fpFPToFP(_NEAREST, term, self.sort)

    def add(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """`a + b`."""
        return z3.fpAdd(_NEAREST, a, b)

    def sub(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """`a - b`."""
        return z3.fpSub(_NEAREST, a, b)

    def mul(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """`a * b`."""
        return z3.fpMul(_NEAREST, a, b)

    def div(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """`a / b`."""
        return z3.fpDiv(_NEAREST, a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401
        """`a * b + c`, rounded once."""
        return z3.fpFMA(_NEAREST, a, b, c)

    def sqrt(self, a: Any) -> Any:  # noqa: ANN401
        """The square root."""
        return z3.fpSqrt(_NEAREST, a)

    def product(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """Not in these op models.

        Raises:
            NotImplementedError: always; an unrounded product is no number of the format.
        """
        raise NotImplementedError("an op model with an unrounded product is not put to the solver")

    def negate(self, a: Any) -> Any:  # noqa: ANN401
        """`-a`."""
        return z3.fpNeg(a)

    def absolute(self, a: Any) -> Any:  # noqa: ANN401
        """`|a|`."""
        return z3.fpAbs(a)

    def distance(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """`|a - b|`."""
        return z3.fpAbs(self.sub(a, b))

    def minimum(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The smaller."""
        return z3.fpMin(a, b)

    def maximum(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The larger."""
        return z3.fpMax(a, b)


class Decided(NamedTuple):
    """What z3 found."""

    verdict: Verdict
    resources: int
    found: dict[str, float]  #: a counterexample; empty if there is none
    deviation: float  #: of it, as the op model computes it in numbers


class Question(NamedTuple):
    """The parts of the question: terms of z3."""

    variables: tuple[Any, ...]
    domain: list[Any]
    accepts: Any
    violates: Any


def question(setting: Setting, wide: FloatFormat, tolerance: float, *, without: Sequence[str] = ()) -> Question:
    """Run the sources on z3's terms.

    Args:
        setting: format, op model and hyperparameters.
        wide: the format of the guard; it must hold differences of the narrow one exactly.
        tolerance: in units of the parameter.
        without: constants of the guard to replace by zero, for a claim that is false.
    """
    narrow: Any = FloatingPoint(setting.fmt)  # what an update of these op models asks of an arithmetic
    op = FloatingPoint(wide)
    variables = tuple(z3.FP(name, narrow.sort) for name in NAMES)
    m, v, m_hat, v_hat, g = variables
    scalars = Scalars(*(narrow.constant(value) for value in setting.scalars))
    update: Any = make_update(narrow, setting.model, setting.options)
    native, recovered = update(m, v, g, scalars), update(m_hat, v_hat, g, scalars)
    constants = setting.constants()._replace(**dict.fromkeys(without, 0.0))
    held = GuardConstants(*(op.above(value) for value in constants))
    bound = make_deviation_bound(op)(held, *(op.widened(one) for one in (m, v, m_hat, v_hat)))
    count = RoundingCount()
    roundings = make_deviation_bound(count)(counted_constants(), *[count.exact] * 4)
    inflation = op.above(1 / (1 - wide.unit_roundoff) ** (roundings + 1))
    largest, zero = narrow.constant(setting.largest), narrow.constant(0.0)
    domain = [z3.fpLEQ(z3.fpAbs(one), largest) for one in variables]
    domain += [z3.And(z3.fpLEQ(zero, one), z3.Not(z3.fpIsNegative(one))) for one in (v, v_hat)]
    apart = op.distance(op.widened(recovered), op.widened(native))
    most = op.constant(tolerance)
    return Question(variables, domain, z3.fpLEQ(op.mul(bound, inflation), most), z3.fpGT(apart, most))


def decide(
    setting: Setting,
    wide: FloatFormat,
    tolerance: float,
    *,
    without: Sequence[str] = (),
    fixed: dict[str, float] | None = None,
    resource_limit: int = RESOURCE_LIMIT,
) -> Decided:
    """Ask whether an accepted pair of states violates the claim.

    Args:
        setting: as `question`.
        wide: as `question`.
        tolerance: as `question`.
        without: as `question`.
        fixed: values of some variables, by name; all are symbolic by default.
        resource_limit: the solver steps that it may take.
    """
    asked = question(setting, wide, tolerance, without=without)
    narrow = FloatingPoint(setting.fmt)
    values = [asked.variables[NAMES.index(name)] == narrow.constant(value) for name, value in (fixed or {}).items()]
    return _answered(setting, asked.variables, [*asked.domain, *values, asked.accepts, asked.violates], resource_limit)


def is_meaningful(setting: Setting, wide: FloatFormat, tolerance: float, fixed: dict[str, float]) -> bool:
    """Whether the guard accepts two different states, and without it some pair would violate the claim.

    Args:
        setting: as `question`.
        wide: as `question`.
        tolerance: as `question`.
        fixed: values of some variables.
    """
    asked = question(setting, wide, tolerance)
    narrow = FloatingPoint(setting.fmt)
    values = [asked.variables[NAMES.index(name)] == narrow.constant(value) for name, value in fixed.items()]
    different = z3.fpNEQ(asked.variables[0], asked.variables[2])
    accepted = _solver([*asked.domain, *values, different, asked.accepts], RESOURCE_LIMIT).check()
    violated = _solver([*asked.domain, asked.violates], RESOURCE_LIMIT).check()
    return bool(accepted == violated == z3.sat)


def _solver(constraints: Sequence[Any], resource_limit: int) -> Any:  # noqa: ANN401
    """A solver that translates to bits and searches."""
    steps = ("simplify", "propagate-values", "fpa2bv", "simplify", "solve-eqs", "max-bv-sharing", "bit-blast")
    solver = z3.Then(*steps, "simplify", "sat").solver()
    solver.set("rlimit", resource_limit)
    solver.add(*constraints)
    return solver


def _answered(setting: Setting, variables: Sequence[Any], constraints: Sequence[Any], resource_limit: int) -> Decided:
    solver = _solver(constraints, resource_limit)
    before = _resources(solver)
    result = solver.check()
    spent = _resources(solver) - before
    if result != z3.sat:
        return Decided(Verdict.PROVED if result == z3.unsat else Verdict.UNKNOWN, spent, {}, 0.0)
    model = solver.model()
    found = {name: _number(model.eval(one, model_completion=True)) for name, one in zip(NAMES, variables, strict=True)}
    return Decided(Verdict.REFUTED, spent, found, deviation_of(setting, found))


def deviation_of(setting: Setting, found: dict[str, float]) -> float:
    """How far apart the op model's updates are, in numbers."""
    small = SmallFormat(setting.fmt)
    update = make_update(small, setting.model, setting.options)
    scalars = Scalars(*(small.constant(value) for value in setting.scalars))
    m, v, m_hat, v_hat, g = (torch.tensor([found[name]], dtype=torch.float64) for name in NAMES)
    return float((update(m_hat, v_hat, g, scalars) - update(m, v, g, scalars)).abs())


def _number(value: Any) -> float:  # noqa: ANN401
    exact = z3.simplify(z3.fpToReal(value))
    return float(Fraction(exact.numerator_as_long(), exact.denominator_as_long()))


def _resources(solver: Any) -> int:  # noqa: ANN401
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118 - not a mapping
