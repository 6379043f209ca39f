"""The guard's evaluation in binary64: each operation, over the reals and rounded, side by side.

An element is an exact value, what was computed for it, and a count k, with the theorems

    t**k * X <= f,    t**k * f <= X,    0 <= X,    0 <= f

of their magnitudes X and f, which is what `RoundingCount` claims of its integers.  Running the guard's source in this
arithmetic proves it.  The magnitude of a value is the value times its sign, a polynomial whose square is 1: a variable
where the sign is not known, so that one derivation serves both.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.context import Context, at_least
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.evaluation import (
    EXACT,
    HELD,
    ONE,
    POSITIVE,
    Binary64Arithmetic,
    T,
)
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.symbolic import ExactArithmetic
from guarded_moments.reference.guard.constants import GuardConstants


class Pair(NamedTuple):
    """An exact value, the computed one, and how many roundings are between."""

    exact: Polynomial
    computed: Polynomial
    roundings: int
    positive: bool  #: neither magnitude is zero
    sign: Polynomial = ONE  #: of both

    @property
    def sizes(self) -> tuple[Polynomial, Polynomial]:
        """The magnitudes, of the exact value and of the computed one."""
        return self.sign * self.exact, self.sign * self.computed


class EvaluationArithmetic:
    """`OrderedArithmetic[Pair]`: computes both, and proves how far apart they are."""

    def __init__(self, tools: Toolbox, context: Context, exact: Definitions, floats: Definitions) -> None:
        """Prove in a context that knows all definitions, of the exact run and of the one in binary64."""
        self.tools, self.c = tools, context
        context.by("0 <= t", "t == 1 - mu", "mu <= 1/2")
        context.by("0 < t", "t == 1 - mu", "mu <= 1/2")
        context.by("t <= 1", "t == 1 - mu", "0 < mu")
        facts = {"x": "0 <= x", "f": "f == x + x*d", "t": "t == 1 - mu", "low": "-d <= mu", "high": "d <= mu"}
        facts |= {"mu": "0 < mu", "t0": "0 <= t"}
        near = tools.by_products("t*x <= f", facts, "x low")
        #: `t*x <= f` and `t*f <= x` of one rounding.
        self.rounds = [*near, *tools.by_products("t*f <= x", facts, "x high t0", "x mu mu", "x high")]
        self.turned = tools.lemma("s*f == s*x + s*x*d", "f == x + x*d", hints=_EQUATIONS)
        self.exact, self.floats = ExactArithmetic(exact), Binary64Arithmetic(floats)

    def power(self, count: int) -> Polynomial:
        """`t**count`, shown to be nonnegative."""
        for exponent in range(2, count + 1):
            self.c.use(self.tools.product, x=T ** (exponent - 1), y=T)
        return T**count

    def inflated(self, inflation: Polynomial, count: int, fewer: int) -> None:
        """`1 <= I*t**fewer`, from the same of as many roundings as the inflation `I` was counted for."""
        self.power(count)
        facts = {"one": "1 <= I*(p*t)", "I": "0 <= I", "p": "0 <= p", "t": "t <= 1"}
        less = self.tools.by_products("1 <= I*p", facts, "one", "I p t")
        for exponent in range(count - 1, fewer - 1, -1):
            self.c.use(less, I=inflation, p=T**exponent, t=T)

    def constant(self, value: float) -> Pair:
        """A number that both hold; it is as good as one with two roundings."""
        number = self.exact.constant(value)
        if number.constant_value is None:  # TINY
            self._weakened(Pair(number, number, 0, positive=True), 1)
        return self._weakened(Pair(number, number, 0, positive=True), 2)

    def _weakened(self, one: Pair, count: int) -> Pair:
        """The same with a larger count."""
        weaker = self.tools.lemma("p*t*X <= x", "p*X <= x", "0 <= p", "0 <= X", "0 <= t <= 1")
        for exponent in range(one.roundings, count):
            p = self.power(exponent)
            for large, small in (one.sizes, one.sizes[::-1]):
                if exponent == 0:
                    self.c.add(self.c.known_fact(at_least(small, large))) if small != large else None
                self.c.use(weaker, p=p, X=large, x=small)
        return one._replace(roundings=max(one.roundings, count))

    def rounded(
        self, exact: Polynomial, before: Polynomial, count: int, *, positive: bool, sign: Polynomial = ONE
    ) -> Pair:
        """A rounding of `before`, of which `t**(count-1)*exact <= before` and so on are known, of the magnitudes."""
        c, tools = self.c, self.tools
        result, relative = self.rounding_of(before)
        p = self.power(count - 1)
        self.power(count)
        if sign != ONE:
            c.use(self.turned, s=sign, f=result, x=before, d=relative)
        pair = Pair(exact, result, count, positive, sign)
        before, (exact, result) = sign * before, pair.sizes
        c.use(self.rounds, x=before, f=result, d=relative)
        chain = tools.by_products("p*t*X <= f", {"p": "p*X <= x", "t": "t*x <= f", "t0": "0 <= t"}, "p t0", "t")
        back = tools.by_products("p*t*f <= X", {"p": "p*x <= X", "t": "t*f <= x", "p0": "0 <= p"}, "p", "t p0")
        for theorem in (chain, back):
            c.use(theorem, p=p, X=exact, x=before, f=result)
        relation = "<" if positive else "<="
        keeps = tools.lemma(f"0 {relation} f", f"0 {relation} x", "f == x + x*d", "abs(d) <= mu", "mu <= 1/2")
        c.use(keeps, x=before, f=result, d=relative)
        return pair

    def rounding_of(self, before: Polynomial) -> tuple[Polynomial, Polynomial]:
        """The rounded value and its relative error: variables that were made when the definitions were stated."""
        result = self.floats.rounded(before)
        return result, Polynomial.variable(next(iter(result.variables)).replace("rounded", "relative"))

    def add(self, a: Pair, b: Pair) -> Pair:
        """`a + b`, of one sign."""
        c, count = self.c, max(a.roundings, b.roundings)
        a, b = self._weakened(a, count), self._weakened(b, count)
        total = self.tools.lemma("p*(X + Y) <= x + y", "p*X <= x", "p*Y <= y")
        p = self.power(count)
        for one, other in _BOTH_WAYS:
            c.use(total, p=p, X=a.sizes[one], Y=b.sizes[one], x=a.sizes[other], y=b.sizes[other])
        positive = a.positive or b.positive
        self._sum_sign(a, b, positive=positive)
        exact, before = a.exact + b.exact, a.computed + b.computed
        return self.rounded(exact, before, count + 1, positive=positive, sign=a.sign)

    def _sum_sign(self, a: Pair, b: Pair, *, positive: bool) -> None:
        signs = ["<" if one.positive else "<=" for one in (a, b)]
        theorem = self.tools.lemma(f"0 {'<' if positive else '<='} x + y", f"0 {signs[0]} x", f"0 {signs[1]} y")
        for place in (0, 1):
            self.c.use(theorem, x=a.sizes[place], y=b.sizes[place])

    def mul(self, a: Pair, b: Pair) -> Pair:
        """`a * b`."""
        c = self.c
        p, q = self.power(a.roundings), self.power(b.roundings)
        self.power(a.roundings + b.roundings)
        facts = {"q": "0 <= q", "Y": "0 <= Y", "x": "0 <= x", "one": "p*X <= x", "other": "q*Y <= y"}
        times = self.tools.by_products("p*q*(X*Y) <= x*y", facts, "x other", "q Y one")
        for one, other in _BOTH_WAYS:
            c.use(times, p=p, q=q, X=a.sizes[one], Y=b.sizes[one], x=a.sizes[other], y=b.sizes[other])
        positive = a.positive and b.positive
        product = self.tools.positive_product if positive else self.tools.product
        for place in (0, 1):
            c.use(product, x=a.sizes[place], y=b.sizes[place])
        exact, before, count = a.exact * b.exact, a.computed * b.computed, a.roundings + b.roundings + 1
        return self.rounded(exact, before, count, positive=positive, sign=a.sign * b.sign)

    def div(self, a: Pair, b: Pair) -> Pair:
        """`a / b`, for `b` that is positive."""
        c, tools = self.c, self.tools
        exact, before = self.exact.div(a.exact, b.exact), self.floats.definitions.quotient(a.computed, b.computed)
        p, q = self.power(a.roundings), self.power(b.roundings)
        self.power(a.roundings + b.roundings)
        sign = tools.positive_quotient if a.positive else tools.nonnegative_quotient
        turned = tools.lemma("s*q*d == s*p", "q*d == p", hints=_EQUATIONS)
        sizes = (a.sign * exact, a.sign * before)
        for place, quotient in enumerate((exact, before)):
            if a.sign != ONE:
                c.use(turned, s=a.sign, q=quotient, d=b[place], p=a[place])
            c.use(sign, d=b[place], p=a.sizes[place], q=sizes[place])
        # p*q*Q*Y = q*(p*X) <= q*x = q*y*z <= Y*z, and Y is positive.
        facts = {"X": "Q*Y == X", "x": "z*y == x", "one": "p*X <= x", "other": "q*y <= Y", "q": "0 <= q", "z": "0 <= z"}
        below = tools.by_products("(p*q*Q)*Y <= z*Y", facts, "q one", "z other")
        for one, other in _BOTH_WAYS:
            c.use(below, p=p, q=q, Q=sizes[one], z=sizes[other], X=a.sizes[one], Y=b[one], x=a.sizes[other], y=b[other])
            c.use(tools.factor_removed, x=p * q * sizes[one], y=sizes[other], t=b[one])
        return self.rounded(exact, before, a.roundings + b.roundings + 1, positive=a.positive, sign=a.sign)

    def sqrt(self, a: Pair) -> Pair:
        """The square root; a platform's, so with two roundings more."""
        c, tools = self.c, self.tools
        half = -(-a.roundings // 2)
        a = self._weakened(a, 2 * half)
        exact, before = self.exact.sqrt(a.exact), self.floats.definitions.root(a.computed)
        p = self.power(half)
        square = tools.lemma(
            "(p*S)*(p*S) <= s*s", "P*X <= x", "P == p*p", "S*S == X", "s*s == x", hints=Hints(ladder=((1, 9, 2),))
        )
        for one, other, mine, theirs in ((0, 1, exact, before), (1, 0, before, exact)):
            c.use(square, p=p, P=p * p, X=a[one], x=a[other], S=mine, s=theirs)
            c.use(tools.product, x=p, y=mine)
            c.use(tools.roots, x=p * mine, y=theirs)
        if a.positive:
            positive = tools.lemma("0 < s", "0 <= s", "s*s == x", "0 < x", hints=Hints(ladder=((2, 3, 1),)))
            for place, root in enumerate((exact, before)):
                c.use(positive, s=root, x=a[place])
        near = self.rounded(exact, before, half + 1, positive=a.positive)
        result = self.floats.sqrt(a.computed)
        self.power(half + 3)
        p = self.power(half + 1)
        last = tools.lemma("p*t*t*X <= f", "p*X <= x", "t*t*x <= f", "0 <= t")
        back = tools.lemma("p*t*t*f <= X", "p*x <= X", "t*t*f <= x", "0 <= p")
        for theorem in (last, back):
            c.use(theorem, p=p, X=exact, x=near.computed, f=result)
        sign = "<" if a.positive else "<="
        c.use(tools.lemma(f"0 {sign} f", f"0 {sign} x", "0 < t", "t*t*x <= f"), t=T, x=near.computed, f=result)
        return Pair(exact, result, half + 3, positive=a.positive)

    def distance(self, a: Pair, b: Pair) -> Pair:
        """`|a - b|` of two exact inputs."""
        exact = self.exact.distance(a.exact, b.exact)
        same = self.floats.definitions.magnitude(a.computed - b.computed)
        self.c.use(self._same_magnitude(), x=exact, y=same, z=a.exact - b.exact)
        return self.rounded(exact, same, 1, positive=False)

    def _same_magnitude(self) -> list[Proved]:
        given = ("0 <= x", "0 <= y", "x*x == z*z", "y*y == z*z")
        return self.tools.lemma("x <= y and y <= x", *given, hints=Hints(ladder=((2, 2, 1),)))

    def absolute(self, a: Pair) -> Pair:
        """`|a|` of an exact input."""
        exact, same = self.exact.absolute(a.exact), self.floats.absolute(a.computed)
        self.c.use(self._same_magnitude(), x=exact, y=same, z=a.exact)
        return Pair(exact, same, 0, positive=False)

    def minimum(self, a: Pair, b: Pair) -> Pair:
        """The smaller."""
        return self._extreme(a, b, largest=False)

    def maximum(self, a: Pair, b: Pair) -> Pair:
        """The larger."""
        return self._extreme(a, b, largest=True)

    def _extreme(self, a: Pair, b: Pair, *, largest: bool) -> Pair:
        c, tools, count = self.c, self.tools, max(a.roundings, b.roundings)
        a, b = self._weakened(a, count), self._weakened(b, count)
        p = self.power(count)
        pick = self.exact.maximum if largest else self.exact.minimum
        pick_computed = self.floats.maximum if largest else self.floats.minimum
        made = (pick(a.exact, b.exact), pick_computed(a.computed, b.computed))
        for one, other in _BOTH_WAYS:
            if largest:
                above = tools.lemma("p*X <= f", "p*A <= f", "p*B <= f", "(p*X - p*A)*(p*X - p*B) == 0", hints=_EXTREME)
                squared = tools.lemma(
                    "(p*X - p*A)*(p*X - p*B) == 0", "(X - A)*(X - B) == 0", hints=Hints(ladder=((1, 9, 2),))
                )
                c.use(squared, p=p, X=made[one], A=a[one], B=b[one])
                for side in (a, b):
                    c.use(tools.transitive, x=p * side[one], y=side[other], z=made[other])
                c.use(above, p=p, X=made[one], f=made[other], A=a[one], B=b[one])
            else:
                for side in (a, b):
                    c.use(tools.scaled, x=made[one], y=side[one], c=p)
                    c.use(tools.transitive, x=p * made[one], y=p * side[one], z=side[other])
                c.use(tools.below_least, x=p * made[one], a=a[other], b=b[other], p=made[other])
        self._extreme_sign(a, b, made, largest=largest)
        return Pair(made[0], made[1], count, largest and (a.positive or b.positive))

    def _extreme_sign(self, a: Pair, b: Pair, made: tuple[Polynomial, Polynomial], *, largest: bool) -> None:
        c, tools = self.c, self.tools
        if largest:
            side, sign = (a, "<") if a.positive else (b, "<") if b.positive else (a, "<=")
            for place in (0, 1):
                c.use(tools.lemma(f"0 {sign} y", f"0 {sign} x", "x <= y"), x=side[place], y=made[place])
            return
        for place in (0, 1):
            c.use(tools.below_least, x=Polynomial(), a=a[place], b=b[place], p=made[place])


#: Exact and computed, each bounding the other: their places in a `Pair`.
_BOTH_WAYS: tuple[tuple[Literal[0, 1], Literal[0, 1]], ...] = ((0, 1), (1, 0))
_EQUATIONS = Hints(ladder=((1, 9, 2),))
_EXTREME = Hints(ladder=((2, 4, 0), (2, 4, 1)))


def held_constants(tools: Toolbox, c: Context, positive: Collection[str] = POSITIVE) -> GuardConstants[Pair]:
    """The guard's constants: each was rounded up once, which is as good as two roundings."""
    pairs = []
    for name, exact, held in zip(GuardConstants._fields, EXACT, HELD, strict=True):
        if name == "threshold":
            pairs.append(Pair(held, held, 0, positive=False))
            continue
        sign = "<" if name in positive else "<="
        c.use(tools.lemma(f"0 {sign} y", f"0 {sign} x", "x <= y"), x=exact, y=held)
        c.use(tools.lemma("t*t*x <= y", "x <= y", "0 <= x", "0 <= t <= 1"), x=exact, y=held)
        pairs.append(Pair(exact, held, 2, positive=name in positive))
    return GuardConstants(*pairs)
