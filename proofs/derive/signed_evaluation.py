"""Evaluation in binary64 where terms of both signs are added, and cancel: an absolute error beside a magnitude.

An element is a `Pair` of `derive.evaluation` as long as its relative error is bounded.  A sum of terms whose signs
differ, or are not known to agree, is a `Near`: an exact value X, the computed one f, a magnitude M and a count k, with

    |f - X| <= 9/8*k*mu * M,    |X| <= M

which grows by one for every rounding (`mu <= 2**-53`, so that products of errors fit into the eighth).
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, TypeAlias

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.context import Context, DerivationError, at_least
from guarded_moments.proofs.derive.evaluation import EvaluationArithmetic, Pair
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import MU, ONE, ZERO, T
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.reference.floats import BINARY64

_MOST = f"mu <= 2**-{BINARY64.precision}"


class Near(NamedTuple):
    """An exact value, the computed one, a magnitude that both are near, and how many roundings are between."""

    exact: Polynomial
    computed: Polynomial
    magnitude: Polynomial
    roundings: int


class Least(NamedTuple):
    """The smaller of two upper bounds, whose errors have nothing in common."""

    first: Near
    second: Pair
    computed: Polynomial


Element: TypeAlias = Pair | Near


def rate(count: int) -> Polynomial:
    """What a value may err by after so many roundings, relative to its magnitude."""
    return MU.scaled(Fraction(9 * count, 8)) if count else ZERO


class SignedEvaluation(EvaluationArithmetic):
    """`SignedArithmetic` of both kinds of elements; `widened` says which magnitudes are taken for larger ones."""

    def __init__(self, tools: Toolbox, context: Context, exact: Definitions, floats: Definitions) -> None:
        """Prove in a context that knows all definitions, of the exact run and of the one in binary64."""
        super().__init__(tools, context, exact, floats)
        self.widened: dict[Polynomial, Polynomial] = {}
        self.signs: dict[Polynomial, Polynomial] = {}  #: of differences of exact inputs
        facts = {"p": "1 - k*m <= p", "is": "t == 1 - m", "t": "0 <= t", "k": "0 <= k", "m": "0 < m"}
        self.bernoulli_of = tools.by_products("1 - (k + 1)*m <= p*t", facts, "p t", "k m m")
        facts = {"P": "p*X <= f", "p": "p*f <= X", "one": "1 - a <= p", "X": "0 <= X", "f": "0 <= f"}
        facts |= {"a": "0 <= a", "small": "9*a <= 1"}
        products = ["P", "one X", "X a", "p", "p a", "f one", "f one a", "f a small"]
        self.nearness = tools.by_products("abs(f - X) <= 9/8*a*X", facts, *products)
        self.unsigned = tools.lemma(
            "abs(x) <= z", "abs(s*x) <= z", "s*s == 1", "0 <= z", hints=Hints(ladder=((2, 4, 2),))
        )
        self.product_of_errors = self._product_of_errors()

    def _product_of_errors(self) -> list[Proved]:
        """`|f - X| <= z, |X| <= M, |g - Y| <= w, |Y| <= N |- |f*g - X*Y| <= z*N + M*w + z*w`."""
        tools = self.tools
        c = Context(tools.prover, "abs(f - X) <= z", "abs(X) <= M", "abs(g - Y) <= w", "abs(Y) <= N")
        for x, a, y, b in (("f - X", "z", "Y", "N"), ("X", "M", "g - Y", "w"), ("f - X", "z", "g - Y", "w")):
            c.use(tools.product_magnitude, x=x, a=a, y=y, b=b)
        c.use(tools.sum_magnitude, x="(f - X)*Y", a="z*N", y="X*(g - Y)", b="M*w")
        return c.use(tools.sum_magnitude, x="(f - X)*Y + X*(g - Y)", a="z*N + M*w", y="(f - X)*(g - Y)", b="z*w")

    def bernoulli(self, count: int) -> Polynomial:
        """Show `1 - count*mu <= t**count`, and return the power."""
        power = self.power(count)
        for exponent in range(count):
            self.c.use(self.bernoulli_of, k=exponent, m=MU, p=T**exponent, t=T)
        return power

    def near(self, one: Element) -> Near:
        """The same with an absolute error."""
        if isinstance(one, Near):
            return one
        c, tools, count = self.c, self.tools, one.roundings
        (exact, computed), error = one.sizes, rate(one.roundings)
        if count:
            a = MU.scaled(Fraction(count))
            c.collect(at_least(ONE, a.scaled(Fraction(9))), {"most": _MOST}, ["most"])
            c.collect(at_least(a, ZERO), {"mu": "0 < mu"}, ["mu"])
            c.use(self.nearness, p=self.bernoulli(count), X=exact, f=computed, a=a)
            c.use(tools.product, x=error, y=exact)
        elif exact != computed:
            raise DerivationError(f"no rounding is between {exact} and {computed}")
        c.use(tools.own_magnitude, x=exact)
        if one.sign != ONE:
            for value, bound in ((one.computed - one.exact, error * exact), (one.exact, exact)):
                c.use(self.unsigned, s=one.sign, x=value, z=bound)
        return self._wide(Near(one.exact, one.computed, exact, count))

    def _wide(self, one: Near) -> Near:
        """With the magnitude that is taken for this one."""
        wide = self.widened.get(one.magnitude)
        return one if wide is None else self.wider(one, wide)

    def wider(self, one: Near, magnitude: Polynomial) -> Near:
        """With a larger magnitude, which is known to be."""
        c, tools = self.c, self.tools
        if one.magnitude == magnitude:
            return one
        c.use(tools.scaled, x=one.magnitude, y=magnitude, c=rate(one.roundings))
        error = (one.computed - one.exact, rate(one.roundings) * one.magnitude, rate(one.roundings) * magnitude)
        for value, small, large in (error, (one.exact, one.magnitude, magnitude)):
            c.use(tools.looser, x=value, y=small, z=large)
        c.use(tools.transitive, x=ZERO, y=one.magnitude, z=magnitude)
        return one._replace(magnitude=magnitude)

    def _rougher(self, one: Near, count: int) -> Near:
        """With more roundings than there are."""
        if one.roundings < count:
            self.c.collect(at_least(rate(count), rate(one.roundings)), {"mu": "0 < mu"}, ["mu"])
            self._looser(one, rate(one.roundings), rate(count))
        return one._replace(roundings=max(one.roundings, count))

    def _looser(self, one: Near, small: Polynomial, large: Polynomial) -> None:
        """From one rate of the error to a larger one."""
        c, tools, m = self.c, self.tools, one.magnitude
        c.use(tools.scaled, x=small, y=large, c=m)
        c.use(tools.looser, x=one.computed - one.exact, y=small * m, z=large * m)

    def _rounded_near(self, before: Near, error: Polynomial, count: int) -> Near:
        """A rounding of a value that errs by `error` times its magnitude."""
        c, m = self.c, before.magnitude
        result, relative = self.rounding_of(before.computed)
        rounds = self.tools.lemmas("rounded_operation")
        c.use(rounds, X=before.exact, x=before.computed, r=result, K=m, z=error * m, d=relative, h=ZERO, q=MU, n=ZERO)
        rounded = before._replace(computed=result, roundings=count)
        whole = MU + (ONE + MU) * error
        facts = {"m": "0 < mu", "most": _MOST}
        c.collect(at_least(rate(count), whole), facts, ["m", "m most", "m m most"])
        self._looser(rounded, whole, rate(count))
        return self._wide(rounded)

    def add(self, a: Element, b: Element) -> Element:  # type: ignore[override]
        """`a + b`."""
        if isinstance(a, Pair) and isinstance(b, Pair) and a.sign == b.sign:
            return super().add(a, b)
        a, b = self.near(a), self.near(b)
        count = max(a.roundings, b.roundings)
        a, b, error = self._rougher(a, count), self._rougher(b, count), rate(count)
        c, total = self.c, self.tools.sum_magnitude
        c.use(total, x=a.computed - a.exact, a=error * a.magnitude, y=b.computed - b.exact, b=error * b.magnitude)
        c.use(total, x=a.exact, a=a.magnitude, y=b.exact, b=b.magnitude)
        together = Near(a.exact + b.exact, a.computed + b.computed, a.magnitude + b.magnitude, count)
        c.use(self.tools.lemma("0 <= x + y", "0 <= x", "0 <= y"), x=a.magnitude, y=b.magnitude)
        return self._rounded_near(together, error, count + 1)

    def sub(self, a: Element, b: Element) -> Element:
        """`a - b`: of two exact inputs whose order has a sign, or of anything."""
        if isinstance(a, Pair) and isinstance(b, Pair) and a.roundings == b.roundings == 0:
            difference = a.exact - b.exact
            return self.rounded(difference, difference, 1, positive=False, sign=self.signs[difference])
        return self.add(a, self.negate(b))

    def negate(self, a: Element) -> Near:
        """`-a`; bounds of a magnitude hold of it as they stand."""
        near = self.near(a)
        return near._replace(exact=-near.exact, computed=-near.computed)

    def mul(self, a: Element, b: Element) -> Element:  # type: ignore[override]
        """`a * b`."""
        if isinstance(a, Pair) and isinstance(b, Pair) and ONE in {a.sign, b.sign}:
            return super().mul(a, b)
        c, tools, a, b = self.c, self.tools, self.near(a), self.near(b)
        one, other = rate(a.roundings), rate(b.roundings)
        c.use(self.product_of_errors, f=a.computed, X=a.exact, g=b.computed, Y=b.exact, z=one * a.magnitude,
              M=a.magnitude, w=other * b.magnitude, N=b.magnitude)  # fmt: skip
        c.use(tools.product_magnitude, x=a.exact, a=a.magnitude, y=b.exact, b=b.magnitude)
        c.use(tools.product, x=a.magnitude, y=b.magnitude)
        before = Near(a.exact * b.exact, a.computed * b.computed, a.magnitude * b.magnitude, 0)
        return self._rounded_near(before, one + other + one * other, a.roundings + b.roundings + 1)

    def absolute(self, a: Element) -> Element:  # type: ignore[override]
        """`|a|`: the magnitude, whose name both runs have."""
        if isinstance(a, Near):
            return self._absolute_near(a)
        if a.sign == ONE or a.roundings == 0:
            return super().absolute(a)
        c, tools, k = self.c, self.tools, self.power(a.roundings)
        made = Pair(self.exact.absolute(a.exact), self.floats.absolute(a.computed), a.roundings, a.positive)
        squared = tools.lemma("a*a == x*x", "a*a == y*y", "x == s*y", "s*s == 1", hints=Hints(ladder=((1, 99, 2),)))
        for place in (0, 1):
            c.use(squared, a=made[place], x=a.sizes[place], y=a[place], s=a.sign)
            c.use(tools.same_magnitude, a=made[place], x=a.sizes[place])
        same = tools.lemma("p*A <= B", "p*x <= y", "A == x", "B == y", hints=Hints(ladder=((1, 99, 1),)))
        for one, other in ((0, 1), (1, 0)):
            c.use(same, p=k, x=a.sizes[one], y=a.sizes[other], A=made.sizes[one], B=made.sizes[other])
        return made

    def _absolute_near(self, a: Near) -> Near:
        """Magnitudes are no further apart than what they are of."""
        made = a._replace(exact=self.exact.absolute(a.exact), computed=self.floats.absolute(a.computed))
        c, tools = self.c, self.tools
        magnitude = tools.lemma("abs(x) <= p", "0 <= p", "p*p == x*x")
        for size, of in ((made.exact, a.exact), (made.computed, a.computed)):
            c.use(magnitude, p=size, x=of)
        defined = "abs(x) <= p", "abs(y) <= q", "p*p == x*x", "q*q == y*y"
        apart = tools.lemma("abs(q - p) <= z", "abs(y - x) <= z", *defined, hints=_MAGNITUDES)
        within = tools.lemma("abs(p) <= z", "abs(x) <= z", "0 <= p", "p*p == x*x", hints=_MAGNITUDES)
        c.use(apart, p=made.exact, q=made.computed, x=a.exact, y=a.computed, z=rate(a.roundings) * a.magnitude)
        c.use(within, p=made.exact, x=a.exact, z=a.magnitude)
        return made

    def minimum(self, a: Element, b: Element) -> Element | Least:  # type: ignore[override]
        """The smaller."""
        if isinstance(a, Near) and isinstance(b, Pair) and b.exact != ZERO:
            return Least(a, b, self.floats.minimum(a.computed, b.computed))
        return self._either(a, b, largest=False)

    def maximum(self, a: Element, b: Element) -> Element:  # type: ignore[override]
        """The larger."""
        if isinstance(a, Pair) and isinstance(b, Pair) and a.sign == b.sign == ONE:
            return super().maximum(a, b)
        return self._either(a, b, largest=True)

    def _either(self, a: Element, b: Element, *, largest: bool) -> Near:
        """The larger or the smaller of two of one magnitude, or of one and zero."""
        c, tools = self.c, self.tools
        a = self.near(a)
        b = Near(ZERO, ZERO, a.magnitude, 0) if isinstance(b, Pair) and b.exact == ZERO else self.near(b)
        if a.magnitude != b.magnitude:
            raise DerivationError(f"of two magnitudes: {a.magnitude} and {b.magnitude}")
        if b.exact == ZERO:
            c.use(tools.own_magnitude, x=ZERO)
            c.use(tools.looser, x=ZERO, y=ZERO, z=a.magnitude)
        count = max(a.roundings, b.roundings)
        a, b = self._rougher(a, count), self._rougher(b, count)
        exact, floats = (op.maximum if largest else op.minimum for op in (self.exact, self.floats))
        made = Near(exact(a.exact, b.exact), floats(a.computed, b.computed), a.magnitude, count)
        sides = "a <= p", "b <= p", "A <= P", "B <= P"
        if not largest:
            sides = "p <= a", "p <= b", "P <= A", "P <= B"
        defined = *sides, "(p - a)*(p - b) == 0", "(P - A)*(P - B) == 0"
        apart = tools.lemma("abs(p - P) <= z", "abs(a - A) <= z", "abs(b - B) <= z", *defined, hints=_EITHER)
        error = rate(count) * made.magnitude
        c.use(apart, p=made.computed, P=made.exact, a=a.computed, b=b.computed, A=a.exact, B=b.exact, z=error)
        bounded = tools.lemma("abs(P) <= M", "abs(A) <= M", "abs(B) <= M", *sides[2:], "(P - A)*(P - B) == 0",
                              hints=_EITHER)  # fmt: skip
        c.use(bounded, P=made.exact, A=a.exact, B=b.exact, M=a.magnitude)
        return made

    def constant(self, value: float) -> Pair:
        """A number that both hold."""
        return Pair(ZERO, ZERO, 0, positive=False) if value == 0 else super().constant(value)


_MAGNITUDES = Hints(ladder=((2, 3, 1), (2, 4, 2), (3, 4, 2)))
_EITHER = Hints(ladder=((1, 1, 0), (2, 2, 0), (2, 2, 1), (2, 3, 1)))
