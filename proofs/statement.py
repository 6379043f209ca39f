"""What the theorem says, taken from the source that it is about.

For an op model, with its update's kind of interpolation, the statement is built by running on symbols
`reference.adam.make_update`, or `make_amsgrad_update` (twice: the native and the recovered state, one gradient and one
`v_max`), `reference.guard`'s `formula_constants`, `denominator_error`, `update_error`, `exact_constants` and
`make_deviation_bound`:

    hypotheses   what each operation means (`symbolic`), and the preconditions below
    conclusion   |U_hat - U| <= deviation_bound

Claimed: nothing is written down a second time here but the preconditions; a formula changed in `reference` changes the
statement, and a proof of the old one no longer fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import parse_claim
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.symbolic import (
    ExactArithmetic,
    RoundedArithmetic,
    Rounding,
    Symbol,
    as_number,
    polynomial_of,
)
from guarded_moments.reference.adam import Scalars, StepOptions, make_amsgrad_update, make_update
from guarded_moments.reference.guard.closed_form import make_deviation_bound
from guarded_moments.reference.guard.constants import GuardConstants, exact_constants
from guarded_moments.reference.guard.real_update import RealUpdate, formula_constants
from guarded_moments.reference.guard.slack import DenominatorError, RoundingSlack, denominator_error, update_error
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import Interpolation, OpModel, SecondMoment, Update

NATIVE, RECOVERED = "native_", "recovered_"
#: The gradient that both trajectories share, and the state of each.
STATE = ("m", "v")


@dataclass(frozen=True)
class Family:
    """Op models whose update is one sequence of operations: what the theorem depends on, and no names."""

    model: OpModel
    options: StepOptions

    @property
    def is_plain_fused(self) -> bool:
        """Whether the first moment is one fused operation on one difference."""
        return self.model.interpolation is Interpolation.FMA and not self.options.interpolate_from_end

    @property
    def name(self) -> str:
        """The choices that the update's sequence is made of, as one word."""
        model = self.model
        parts = [model.interpolation.name, model.second_moment.name, model.square_root.name]
        parts += [model.correction.name, model.update.name]
        if self.options.interpolate_from_end and model.interpolation is not Interpolation.FMA_TWICE:
            parts.insert(1, f"{model.from_end.name}_FROM_END")
        if self.options.amsgrad:
            parts.append("AMSGRAD")
        return "/".join(parts).lower()


def families(*, amsgrad: bool = False) -> tuple[Family, ...]:
    """Every sequence of an update that some implementation has, each once, by name; without amsgrad or with it."""
    found: dict[str, Family] = {}
    for implementation in IMPLEMENTATIONS.values():
        for model in implementation.models:
            for from_end in (False, True):
                family = Family(model, StepOptions(interpolate_from_end=from_end, amsgrad=amsgrad))
                found.setdefault(family.name, family)
    return tuple(found[name] for name in sorted(found))


class Trajectory(NamedTuple):
    """One update of the op model, on symbols."""

    update: Polynomial
    definitions: Definitions
    roundings: tuple[Rounding, ...]


class Statement(NamedTuple):
    """The theorem about one family."""

    family: Family
    updates: frozenset[Atom]  #: hypotheses about both updates, and what the guard's constants must be good for
    hypotheses: frozenset[Atom]  #: those, and about the guard's bound
    conclusion: tuple[Atom, ...]  #: `U_hat - U <= bound` and `U - U_hat <= bound`
    native: Trajectory
    recovered: Trajectory
    real: RealUpdate  #: of symbols
    denominator: DenominatorError  #: of symbols
    error: RoundingSlack  #: of symbols
    constants: GuardConstants[Polynomial]
    bound: Polynomial
    exact: Definitions  #: of the constants
    guard: Definitions  #: of the guard's own quantities


#: What is positive: `root` and `eps` of the formula, and the magnitude of the step size.
POSITIVE = frozenset({"root", "eps", "step"})
_ONE = Polynomial.constant(1)
#: amsgrad's third moment, which both trajectories share.
_V_MAX = Polynomial.variable("v_max")


def scalars_of(family: Family) -> Scalars[Polynomial]:
    """The kernel's constants, as the variables of the formula; torch's step size is negative."""
    model = family.model
    named = {name: Polynomial.variable(name) for name in Scalars._fields}
    named["w_minus_one"], named["one_minus_w"] = named["w"] - _ONE, _ONE - named["w"]
    named["step"] = -named["step"]
    if model.update is Update.QUOTIENT:  # the step size is inside these two
        named["root"], named["eps"] = -named["root"], -named["eps"]
    if model.interpolation is Interpolation.FMA_TWICE:  # no separate weight is held
        named["beta1"] = _ONE - named["w"]
    if model.second_moment is SecondMoment.FMA_TWICE:
        named["beta2"] = _ONE - named["c"]
    return Scalars(**named)


def preconditions(family: Family) -> tuple[str, ...]:
    """What must hold besides: `compress` checks each, or it is true of every binary32 (see `proofs.trusted_base`)."""
    stated = ["0 < u <= 1/16", "0 <= n", "0 <= w <= 1", "0 < c <= 1", "0 < root", "0 < eps", "0 < step"]
    if family.model.second_moment is not SecondMoment.FMA_TWICE:  # which holds c = 1 - beta2
        stated.append("0 <= beta2")
    if family.options.interpolate_from_end:
        stated.append("1/2 <= w")
    if family.options.amsgrad:
        stated.append("0 <= v_max")
    return (*stated, "0 <= native_v", "0 <= recovered_v")


def statement(family: Family) -> Statement:
    """Run the sources on symbols."""
    scalars = scalars_of(family)
    g = Polynomial.variable("g")
    native, recovered = (_trajectory(family, scalars, prefix, g) for prefix in (NATIVE, RECOVERED))

    exact = Definitions("exact_", POSITIVE)
    lifted = Scalars(*(as_number(Symbol(value, exact)) for value in scalars))
    u, n = (as_number(Symbol(Polynomial.variable(name), exact)) for name in ("u", "n"))
    real = formula_constants(family.model, lifted)
    real = RealUpdate(*(as_number(Symbol(polynomial_of(value), exact)) for value in real))

    def root_above(value: Fraction) -> Fraction:
        return as_number(Symbol(exact.root_above(polynomial_of(value)), exact))

    def root_below(value: Fraction) -> Fraction:  # as `floats.square_root_down` has it
        return value / root_above(value)

    denominator = denominator_error(family.model, real, u, n, root_above)
    error = update_error(family.model, family.options, real, u, n, denominator, root_below)
    # The guard may use larger ones, such as those that cover a second op model of the tensor.
    used = RoundingSlack(*(Symbol(Polynomial.variable(f"slack_{name}"), exact) for name in RoundingSlack._fields))  # type: ignore[arg-type]
    bound_of_gradient = as_number(Symbol(Polynomial.variable("gradient_bound"), exact))
    numbers = exact_constants(real, used, root_above, gradient_bound=bound_of_gradient)
    constants = GuardConstants(*(polynomial_of(value) for value in numbers))

    guard = Definitions("guard_")
    state = (Polynomial.variable(prefix + name) for prefix in (NATIVE, RECOVERED) for name in STATE)
    bound = make_deviation_bound(ExactArithmetic(guard))(constants, *state)

    updates = [*native.definitions.atoms, *recovered.definitions.atoms, *exact.atoms]
    updates += [atom for text in preconditions(family) for atom in parse_claim(text, _variables(scalars, g))]
    updates += [
        _at_least(polynomial_of(given), polynomial_of(needed)) for given, needed in zip(used, error, strict=True)
    ]
    updates.append(Atom(_ONE - polynomial_of(denominator.rho), Relation.ABOVE))
    of_bound = [*guard.atoms, _at_least(constants.gradient_bound, g), _at_least(constants.gradient_bound, -g)]
    of_bound += list(_tiny_is_tiny(guard, constants))
    difference = recovered.update - native.update
    conclusion = (_at_least(bound, difference), _at_least(bound, -difference))
    of_updates = normalised(updates)
    return Statement(
        family,
        of_updates,
        of_updates | normalised(of_bound),
        conclusion,
        native,
        recovered,
        real,
        denominator,
        error,
        constants,
        bound,
        exact,
        guard,
    )


def _trajectory(family: Family, scalars: Scalars[Polynomial], prefix: str, g: Polynomial) -> Trajectory:
    definitions = Definitions(prefix)
    arithmetic = RoundedArithmetic(definitions)
    m, v = (Polynomial.variable(prefix + name) for name in STATE)
    if family.options.amsgrad:
        update = make_amsgrad_update(arithmetic, family.model, family.options)(m, v, _V_MAX, g, scalars)
    else:
        update = make_update(arithmetic, family.model, family.options)(m, v, g, scalars)
    return Trajectory(update, definitions, tuple(arithmetic.roundings))


def _tiny_is_tiny(guard: Definitions, constants: GuardConstants[Polynomial]) -> Iterator[Atom]:
    """That TINY, which keeps the guard's quotients finite, is far below every number that is not zero."""
    tiny = Polynomial.variable("tiny")
    roots = Polynomial.variable(f"{guard.prefix}root1") + Polynomial.variable(f"{guard.prefix}root2")
    yield Atom(tiny, Relation.ABOVE)
    yield _at_least(roots * (roots - tiny), Polynomial())  # both are zero, or together at least TINY
    yield _at_least(constants.eps, tiny.scaled(Fraction(8)))
    yield _at_least(constants.eps * constants.eps, tiny.scaled(Fraction(3)))


def normalised(atoms: Iterable[Atom]) -> frozenset[Atom]:
    """Atoms in normal form, without those that are true of all numbers."""
    return frozenset(normal for atom in atoms if not (normal := atom.normal()).trivial)


def _at_least(left: Polynomial, right: Polynomial) -> Atom:
    return Atom(left - right, Relation.AT_LEAST).normal()


def _variables(scalars: Scalars[Polynomial], g: Polynomial) -> frozenset[str]:
    states = (Polynomial.variable(prefix + name) for prefix in (NATIVE, RECOVERED) for name in STATE)
    named = [*scalars, g, _V_MAX, *states]
    return frozenset({"u", "n"}).union(*(polynomial.variables for polynomial in named))
