"""What rounding to nearest is: from the grid of a format to the inequality of one rounding, and to a root that exists.

    normal       r is no further from x than its neighbours r - h and r + h, and h <= 2*u*s with s <= |x|
    subnormal    the same with h <= 2*n
    conclusion   |r - x| <= u*|x| + n        (`rounding_parts` makes its two parts of this)

    second moment    every rounded result is no further from the exact one than zero, which is in the format
    conclusion       the rounded second moment is not negative, whatever the op model

Claimed: the second statement is taken from `reference.adam.make_update`, up to its square root.  Trusted: that IEEE 754
says of a rounded result what is written here of `r`.
"""

from __future__ import annotations

from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.claims import Claim, parse_claim
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, Statement, normalised, preconditions
from guarded_moments.proofs.symbolic import Rounding

_NAMES = frozenset("xrhasun")
_BOTH = ("0 < h", "(x - r)**2 <= (x - r - h)**2", "(x - r)**2 <= (x - r + h)**2", "0 <= a", "a*a == x*x")
_SIGNS = ("0 <= u", "0 <= n")
#: What is known of a rounded result, in the normal range and below it.
NEAREST = {
    "normal": (*_BOTH, *_SIGNS, "0 < s", "s <= a", "h <= 2*u*s"),
    "subnormal": (*_BOTH, *_SIGNS, "h <= 2*n"),
}


class Nearest(NamedTuple):
    """A statement about rounding to nearest."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]


def nearest(kind: str) -> Nearest:
    """The inequality of one rounding, from the grid; `kind` is one of `NEAREST`."""
    given: list[Atom] = [atom for text in NEAREST[kind] for atom in parse_claim(text, _NAMES)]
    then: Claim = parse_claim("abs(r - x) <= u*a + n", _NAMES)
    return Nearest(normalised(given), tuple(atom.normal() for atom in then))


def before_root(stated: Statement) -> tuple[tuple[Rounding, ...], Polynomial]:
    """The roundings of the native trajectory up to its square root, and the second moment under the root."""
    roundings, operands = stated.native.roundings, stated.native.definitions.operands
    at_root = next(place for place, one in enumerate(roundings) if len(operands(one.exact)) == 1)
    (second_moment,) = operands(roundings[at_root].exact)
    return roundings[:at_root], second_moment


def second_moment(stated: Statement) -> Nearest:
    """That the rounded second moment of a family is not negative."""
    roundings, of = before_root(stated)
    given = [atom for text in preconditions(stated.family) for atom in parse_claim(text, _variables(stated))]
    given += [no_further_than_zero(one) for one in roundings]
    return Nearest(normalised(given), (Atom(of, Relation.AT_LEAST),))


def no_further_than_zero(one: Rounding) -> Atom:
    """That a rounded result is no further from the exact one than zero is."""
    apart = one.result - one.exact
    return Atom(one.exact * one.exact - apart * apart, Relation.AT_LEAST).normal()


def _variables(stated: Statement) -> frozenset[str]:
    return frozenset({*"unwc", "beta2", "root", "eps", "step", f"{NATIVE}v", "recovered_v"}) | frozenset(
        name for atom in stated.updates for name in atom.polynomial.variables
    )
