"""Errors, carried through the roundings of one trajectory in the order in which its op model makes them.

    |exact| <= magnitude,    |result - exact| <= error

Nothing here knows an op model by name: its source was run, and each rounding says what it was made of.
"""

from __future__ import annotations

from typing import NamedTuple

from guarded_moments.proofs.derive.context import Context
from guarded_moments.proofs.derive.toolbox import Toolbox, magnitude_of
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, STATE, Statement, preconditions
from guarded_moments.proofs.symbolic import Rounding, polynomial_of

ZERO, ONE = Polynomial(), Polynomial.constant(1)
#: What Y is, with amsgrad.
LARGER = ("top <= Y", "rad*v + curv*ag*ag <= Y", "(Y - top)*(Y - rad*v - curv*ag*ag) == 0")
#: What products of facts begin with: powers of the unit roundoff.
POWERS = ("", "u ", "u u ", "u u u ", "u u u u ", "u u u u u ")


class Tracked(NamedTuple):
    """`|exact| <= magnitude` and `|result - exact| <= error`."""

    exact: Polynomial
    magnitude: Polynomial
    error: Polynomial


class Carrying:
    """The context of one trajectory: each part of its derivation leaves there what it shows."""

    def __init__(self, tools: Toolbox, stated: Statement) -> None:
        """Start from the native trajectory of a statement, at any gradient."""
        self.tools, self.stated = tools, stated
        exact = stated.exact
        fields = {**stated.real._asdict(), **stated.denominator._asdict()}
        names = {name: polynomial_of(value) for name, value in fields.items()}
        names["b"] = names.pop("root")  # the kernel's own `root` keeps its name: it may be the reciprocal
        names |= {"rad": stated.constants.radicand, "curv": stated.constants.curvature}
        names |= {f"needed_{name}": polynomial_of(value) for name, value in stated.error._asdict().items()}
        names |= {name: Polynomial.variable(NATIVE + name) for name in STATE}
        # The same operands give the same variables as in the run of the source.
        names["e"] = exact.root_above(names["v_floor"])
        names["t"] = exact.quotient(names["e"], names["b"])
        names["f"] = exact.quotient(names["floor"], names["eps"])
        names["amplification"] = exact.quotient(ONE, ONE - names["rho"])
        names["below"] = exact.quotient(names["c"], exact.root_above(names["c"]))
        names["share_of_g"] = exact.quotient(names["w"] * names["b"], names["below"])
        self.c = Context(tools.prover, names=names)
        self.c.assume(*(text.replace(NATIVE, "") for text in preconditions(stated.family) if "recovered" not in text))
        self.c.assume(*stated.native.definitions.atoms, *exact.atoms, "rho < 1")
        self.c.assume("0 <= am", "am*am == m*m", "0 <= ag", "ag*ag == g*g")
        self.c.assume("0 <= S", "0 < H", "H*(S + eps) == 1")
        if stated.family.options.amsgrad:  # Y is the larger of v_max and what it is without, over b*b both
            self.c.assume("S*S == Y", "top*b*b == v_max", *LARGER)
        else:
            self.c.assume("S*S == rad*v + curv*ag*ag")
        self.tracked: dict[str, Tracked] = {}
        self._bounds: dict[Polynomial, Polynomial] = {}
        self.sign = 1  #: of the computed denominator: torch's step size is negative, and may be inside it
        self._signs()

    def _signs(self) -> None:
        c, tools = self.c, self.tools
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        c.use(magnitude, x="g", a="ag")
        c.use(magnitude, x="m", a="am")
        if c.poly("b") != c.poly("root"):
            c.use(tools.positive_quotient, d="root", p="1", q="b")
        c.use(tools.own_magnitude, x="1 - w")
        c.use(tools.product, x="beta2", y="v")
        c.use(tools.own_magnitude, x="beta2*v")
        c.use(tools.lemmas("first_moment_bound"), n="am", r="ag", m="m", w="w")
        self._bounds = {c.poly(x): c.poly(k) for x, k in (("g", "ag"), ("m", "am"), ("1 - w", "1 - w"))}
        self._bounds[c.poly("beta2*v")] = c.poly("beta2*v")
        self._bounds[c.poly("(1-w)*m + w*g")] = c.poly("(1-w)*am + w*ag")

    def carry(self, rounding: Rounding) -> None:
        """Carry errors through one rounding whose exact result is linear in rounded results."""
        c, tools = self.c, self.tools
        parts: dict[str | None, Polynomial] = {}
        for monomial, value in rounding.exact.terms:
            of = next((name for name, _ in monomial if name in self.tracked), None)
            rest = tuple(pair for pair in monomial if pair[0] != of)
            parts[of] = parts.get(of, ZERO) + Polynomial.of([(rest, value)])
        exact = rounding.exact.substitute({name: known.exact for name, known in self.tracked.items()})
        difference = error = ZERO
        reached = parts.pop(None, ZERO)
        magnitude = ZERO if exact in self._bounds else magnitude_of(c, tools, reached, self._bounds)
        for name, factor in parts.items():
            assert name is not None  # noqa: S101 - it was just taken out
            known, variable = self.tracked[name], Polynomial.variable(name)
            most = magnitude_of(c, tools, factor, self._bounds)
            c.use(tools.product_magnitude, x=factor, a=most, y=variable - known.exact, b=known.error)
            c.use(tools.sum_magnitude, x=difference, a=error, y=factor * (variable - known.exact), b=most * known.error)
            difference, error = difference + factor * (variable - known.exact), error + most * known.error
            if exact not in self._bounds:
                c.use(tools.product_magnitude, x=factor, a=most, y=known.exact, b=known.magnitude)
                c.use(tools.sum_magnitude, x=reached, a=magnitude, y=factor * known.exact, b=most * known.magnitude)
                reached, magnitude = reached + factor * known.exact, magnitude + most * known.magnitude
        magnitude = self._bounds.get(exact, magnitude)
        self.round(rounding, exact, magnitude, error)
        ((monomial, _),) = rounding.result.terms
        carried = rounding.rate * magnitude + (ONE + rounding.rate) * error + rounding.floor
        self.tracked[monomial[0][0]] = Tracked(exact, magnitude, carried)

    def round(
        self, rounding: Rounding, exact: Polynomial, magnitude: Polynomial, error: Polynomial, sign: int = 1
    ) -> Polynomial:
        """Show and return the error of a rounding whose operand is near `exact`; `sign` turns all of it round."""
        turned = Polynomial.constant(sign)
        self.c.use(
            self.tools.lemmas("rounded_operation"),
            X=exact,
            x=turned * rounding.exact,
            r=turned * rounding.result,
            K=magnitude,
            z=error,
            d=rounding.relative,
            h=turned * rounding.absolute,
            q=rounding.rate,
            n=rounding.floor,
        )
        return rounding.rate * magnitude + (ONE + rounding.rate) * error + rounding.floor
