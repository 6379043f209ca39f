"""What is said about updates after the first, taken from the source that it is about.

*One update that starts from moments which are off already.*  For an op model, `reference.adam.make_update` is run on
the symbols of a binary32 state, and `reference.horizon.carrying` on those of what its errors are at most:

    hypotheses   what each operation means, |M| <= A, |m - M| <= Z, |v - V| <= r*V + E
    conclusion   the same of the moments after the update, with what `carrying` gives for A, Z, r and E;
                 |U_fl - U| <= step * update_distance * H + floor

*Every update at once.*  `make_every_bound` of `reference.horizon.unbounded` is run on symbols; the hypotheses are what
the reduction to one update gives: the two roots at what stands for the gradients, weights on a circle, an epsilon at
least the constant, a step size at most it.

Claimed: nothing is written down a second time here but the preconditions.  That what holds after each update because it
held before holds after all of them, and that the weights of an update are on the circle because those of the one before
were (lemmas `share_of_sequence_grows` and `weights_stay_on_circle`), is induction, on paper.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import parse_claim, parse_polynomial
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import RECOVERED, Statement, normalised
from guarded_moments.proofs.symbolic import ExactArithmetic, Symbol, as_number, polynomial_of
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.slack import RoundingSlack
from guarded_moments.reference.horizon.carrying import (
    FirstMomentError,
    SecondMomentError,
    denominator_distance,
    first_moment_after,
    own_error,
    per_gradient,
    second_moment_after,
    update_distance,
)
from guarded_moments.reference.horizon.unbounded import make_every_bound

#: Of the formula's state `(M, V)`, what the errors of the binary32 one are at most, and why each holds.
INEXACT_START = {
    "0 <= V": "a sum of squares, and of a `v` of the guard's domain",
    "0 <= r <= 1": "`slack_of_later` gives no slack otherwise",
    "0 <= E": "a sum of terms that are not negative",
    "abs(M) <= A": "shown of the update before, and of the start",
    "abs(native_m - M) <= Z": "shown of the update before; a run starts from binary32 moments",
    "abs(native_v - V) <= r*V + E": "shown of the update before; a run starts from binary32 moments",
    "abs(complement*M + w*g) <= K": "`share_of_sequence_grows`, and the moment of the start",
    "distance < 1": "`slack_of_later` gives no slack otherwise",
    "0 <= slack_moment": "`update_error` is not negative, and the guard uses no less",
    "0 <= slack_reciprocal": "as above",
    "0 <= slack_gradient": "as above",
}
#: The magnitude of the gradient, and the formula's denominator.
_OF_FORMULA = (
    "0 <= ag",
    "ag*ag == g*g",
    "0 <= S",
    "S*S == rad*V + curv*ag*ag",
    "0 < H",
    "H*(S + eps) == 1",
)
_VARIABLES = frozenset({"V", "M", "r", "E", "A", "Z", "K", "ag", "S", "H", "g", "native_m", "native_v"})
_VARIABLES |= {f"slack_{name}" for name in RoundingSlack._fields}


class Inexact(NamedTuple):
    """The statement about one family."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: of the first moment, the second, its magnitude, and the update; two atoms each
    names: dict[str, Polynomial]  #: what the conclusion is made of


def inexact(stated: Statement) -> Inexact:
    """Run the sources on symbols.

    Args:
        stated: the statement about the family's first update, of which the native trajectory is taken.
    """
    exact = stated.exact

    def number(value: str | Polynomial) -> Fraction:
        return as_number(Symbol(Polynomial.variable(value) if isinstance(value, str) else value, exact))

    def root_above(value: Fraction) -> Fraction:
        return number(exact.root_above(polynomial_of(value)))

    def root_below(value: Fraction) -> Fraction:
        return value / root_above(value)

    family, real = stated.family, stated.real
    u, n = number("u"), number("n")
    own = own_error(family.model, family.options, real, u, n, stated.denominator, root_below)
    used = RoundingSlack(*(number(f"slack_{name}") for name in RoundingSlack._fields))
    own = own._replace(update=used)  # the guard may use larger ones
    ag = number("ag")
    before, second = FirstMomentError(number("A"), number("Z")), SecondMomentError(number("r"), number("E"))
    after = first_moment_after(own, real, before, ag, own.moment_floor)
    second_after = second_moment_after(own, real, second)
    distance = denominator_distance(real, second, root_above)
    share = per_gradient(own, real, root_above)
    apart = update_distance(own, real, before, ag, number("K"), distance, share, used.reciprocal)

    constants = {name: polynomial_of(getattr(real, name)) for name in ("w", "c", "beta2", "complement", "step", "eps")}
    names = {name: Polynomial.variable(name) for name in _VARIABLES} | constants
    names |= {"b": polynomial_of(real.root), "rad": stated.constants.radicand, "curv": stated.constants.curvature}
    names |= {"distance": polynomial_of(distance), "apart": polynomial_of(apart), "floor": polynomial_of(used.floor)}
    names |= {"A1": polynomial_of(after.magnitude), "Z1": polynomial_of(after.error), "share": polynomial_of(share)}
    names |= {"r1": polynomial_of(second_after.relative), "E1": polynomial_of(second_after.absolute)}
    names |= {"U": stated.native.update}
    stated_of = [*INEXACT_START, *_OF_FORMULA]
    hypotheses = [atom.substitute(names) for text in stated_of for atom in parse_claim(text, names)]
    of_native = (atom for atom in stated.updates if not any(RECOVERED in name for name in atom.polynomial.variables))
    new_m, new_v = new_moments(stated)
    names |= {"m1": new_m, "v1": new_v}
    conclusion = (
        "abs(m1 - (complement*M + w*g)) <= Z1",
        "abs(v1 - (beta2*V + c*ag*ag)) <= r1*(beta2*V + c*ag*ag) + E1",
        "abs(complement*M + w*g) <= A1",
        "abs(U + step*(complement*M + w*g)*H) <= step*apart*H + floor",
    )
    concluded = [atom.substitute(names).normal() for text in conclusion for atom in parse_claim(text, names)]
    return Inexact(normalised([*of_native, *exact.atoms, *hypotheses]), tuple(concluded), names)


def new_moments(stated: Statement) -> tuple[Polynomial, Polynomial]:
    """The binary32 moments after the native update: what is multiplied or divided, and what the root is taken of."""
    trajectory = stated.native
    at_root = next(r for r in trajectory.roundings if len(trajectory.definitions.operands(r.exact)) == 1)
    (new_v,) = trajectory.definitions.operands(at_root.exact)
    *_, last = trajectory.roundings
    numerator, _ = trajectory.definitions.operands(last.exact)
    multiplied = next((r for r in trajectory.roundings if r.result == numerator and r.exact.variables & {"step"}), None)
    (name,) = (multiplied.exact if multiplied else numerator).variables - {"step"}
    return Polynomial.variable(name), new_v


class Every(NamedTuple):
    """The statement about every update at once, which no op model enters."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]  #: `|step_j*(M_hat*H2 - M*H1)| <= the bound`
    bound: Polynomial


#: What the guard's constants must be good for; `qc` is the root of the curvature, `t` at most `3*sqrt(3)`.
CAPS = (
    "0 <= w",
    "0 <= complement",
    "0 < eps",
    "0 <= step",
    "0 <= radicand",
    "0 <= qc",
    "qc*qc == curvature",
    "0 <= gap_cap",
    "1 <= gap_cap*qc",
    "2*radicand_cap == gap_cap",
    "0 < t",
    "t*t <= 27",
    "root_cap*t == gap_cap",
    "16*eps*eps_cap == gap_cap",
    "0 <= root_cap",
    "0 <= eps_cap",
    "0 < tiny",
    "8*tiny <= eps",
    "3*tiny <= eps*eps",
)
#: What stands for an update, and why: `x` is what its gradients add to both first moments.
OF_UPDATE = {
    "0 <= rj": "a power of `beta1/sqrt(beta2)`",
    "0 <= z": "a weight of gradients over its limit",
    "rj*rj + z*z == 1": "`weights_stay_on_circle`, and the start",
    "abs(x) <= z*w*ag": "`share_of_sequence_grows`, with `w` the limit of the weights",
    "0 <= stepj <= step": "`unbounded_constants` takes the largest of any update",
    "eps <= epsj": "`unbounded_constants` takes the least of any update",
    "0 <= v": "`in_domain`",
    "0 <= v_hat": "`in_domain`",
    "0 <= ag": "the root of a sum of squares",
    "ag <= gradient_bound": "2**400 times any `H` is above `gap_cap`: a larger bound would change nothing",
}
#: At what stands for the gradients: the two roots, and the reciprocals with the update's own epsilon.
_AT_GRADIENT = tuple(
    text
    for index, value in ((1, "v"), (2, "v_hat"))
    for text in (
        f"0 <= S{index}",
        f"S{index}*S{index} == radicand*{value} + curvature*ag*ag",
        f"0 < L{index}",
        f"L{index}*(S{index} + epsj) == 1",
    )
)
_OF_EVERY = frozenset({*GuardConstants._fields, "m", "v", "m_hat", "v_hat", "qc", "t", "tiny", "ag", "x", "z", "rj"})
_OF_EVERY |= {"stepj", "epsj", "S1", "S2", "L1", "L2", "A1", "A2"}


def every() -> Every:
    """Run the source on symbols; the constants are variables, of which `CAPS` is assumed."""
    guard = Definitions("guard_")
    arithmetic = ExactArithmetic(guard)
    constants = GuardConstants(*(Polynomial.variable(name) for name in GuardConstants._fields))
    state = [Polynomial.variable(name) for name in ("m", "v", "m_hat", "v_hat")]
    bound = make_every_bound(arithmetic)(constants, *state)
    roots = {f"A{i}": arithmetic.sqrt(constants.radicand * value) for i, value in ((1, state[1]), (2, state[3]))}
    stated = [*CAPS, *OF_UPDATE, *_AT_GRADIENT, "(A1 + A2)*(A1 + A2 - tiny) >= 0"]
    hypotheses = [atom.substitute(roots) for text in stated for atom in parse_claim(text, _OF_EVERY)]
    after = parse_polynomial("stepj*((rj*complement*m_hat + x)*L2 - (rj*complement*m + x)*L1)", _OF_EVERY)
    conclusion = tuple(Atom(bound - one, Relation.AT_LEAST).normal() for one in (after, -after))
    return Every(normalised([*guard.atoms, *hypotheses]), conclusion, bound)
