"""Small theorems that derivations use again and again, each one certificate or a few.

They are found once for a `Prover` and instantiated from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from guarded_moments.proofs.derive.context import Context, Prover, poly
from guarded_moments.proofs.derive.lemmas import Lemmas
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints


class Toolbox:
    """The small theorems of one prover."""

    def __init__(self, prover: Prover) -> None:
        """Find each when it is first asked for."""
        self.prover = prover
        self.lemma = prover.lemma
        self.lemmas = Lemmas(prover)

    def by_products(self, goal: str, facts: Mapping[str, str], *products: str) -> list[Proved]:
        """A theorem whose certificate has these products of facts; see `Context.collect`."""
        return Context(self.prover, *facts.values()).collect(goal, dict(facts), products)

    @cached_property
    def product_magnitude(self) -> list[Proved]:
        """`|x| <= a, |y| <= b |- |x*y| <= a*b`."""
        return self.lemma("abs(x*y) <= a*b", "abs(x) <= a", "abs(y) <= b")

    @cached_property
    def sum_magnitude(self) -> list[Proved]:
        """`|x| <= a, |y| <= b |- |x + y| <= a + b`."""
        return self.lemma("abs(x + y) <= a + b", "abs(x) <= a", "abs(y) <= b")

    @cached_property
    def own_magnitude(self) -> list[Proved]:
        """`0 <= x |- |x| <= x`."""
        return self.lemma("abs(x) <= x", "0 <= x")

    @cached_property
    def scaled_magnitude(self) -> list[Proved]:
        """`|x| <= a, 0 <= c |- |x*c| <= a*c`."""
        return self.lemma("abs(x*c) <= a*c", "abs(x) <= a", "0 <= c")

    @cached_property
    def scaled(self) -> list[Proved]:
        """`x <= y, 0 <= c |- x*c <= y*c`."""
        return self.lemma("x*c <= y*c", "x <= y", "0 <= c")

    @cached_property
    def product(self) -> list[Proved]:
        """`0 <= x, 0 <= y |- 0 <= x*y`."""
        return self.lemma("0 <= x*y", "0 <= x", "0 <= y")

    @cached_property
    def positive_product(self) -> list[Proved]:
        """`0 < x, 0 < y |- 0 < x*y`."""
        return self.lemma("0 < x*y", "0 < x", "0 < y")

    @cached_property
    def transitive(self) -> list[Proved]:
        """`x <= y, y <= z |- x <= z`."""
        return self.lemma("x <= z", "x <= y", "y <= z")

    @cached_property
    def looser(self) -> list[Proved]:
        """`|x| <= y, y <= z |- |x| <= z`."""
        return self.lemma("abs(x) <= z", "abs(x) <= y", "y <= z")

    @cached_property
    def roots(self) -> list[Proved]:
        """`0 <= x, 0 <= y, x*x <= y*y |- x <= y`."""
        return self.lemma("x <= y", "0 <= x", "0 <= y", "x*x <= y*y")

    @cached_property
    def reciprocals(self) -> list[Proved]:
        """`0 < a <= b, 0 < i, 0 < j, i*a == 1, j*b == 1 |- j <= i`."""
        facts = ("0 < a", "a <= b", "0 < i", "0 < j", "i*a == 1", "j*b == 1")
        return self.lemma("j <= i", *facts, hints=Hints(ladder=((3, 4, 2), (3, 5, 3))))

    @cached_property
    def positive_quotient(self) -> list[Proved]:
        """`0 < d, 0 < p, q*d == p |- 0 < q`."""
        return self.lemma("0 < q", "0 < d", "0 < p", "q*d == p")

    @cached_property
    def nonnegative_quotient(self) -> list[Proved]:
        """`0 < d, 0 <= p, q*d == p |- 0 <= q`."""
        return self.lemma("0 <= q", "0 < d", "0 <= p", "q*d == p")

    @cached_property
    def own_square_quotient(self) -> list[Proved]:
        """`0 < x, x*E == n*n |- 0 <= E`."""
        return self.lemma("0 <= E", "0 < x", "x*E == n*n", hints=Hints(squares=(poly("n"),)))

    @cached_property
    def below_quotient(self) -> list[Proved]:
        """`0 < d, x*d <= p, q*d == p |- x <= q`."""
        return self.lemma("x <= q", "0 < d", "x*d <= p", "q*d == p")

    @cached_property
    def below_least(self) -> list[Proved]:
        """`x <= a, x <= b, (p - a)*(p - b) == 0 |- x <= p`."""
        facts = ("x <= a", "x <= b", "(p - a)*(p - b) == 0")
        return self.lemma("x <= p", *facts, hints=Hints(squares=(poly("p"),), ladder=((2, 2, 0),)))

    @cached_property
    def same_magnitude(self) -> list[Proved]:
        """`0 <= x, 0 <= a, a*a == x*x |- a == x`."""
        return self.lemma("a == x", "0 <= x", "0 <= a", "a*a == x*x")

    @cached_property
    def least_is_first(self) -> list[Proved]:
        """`a <= b, p <= a, (p - a)*(p - b) == 0 |- p == a`."""
        return self.lemma("p == a", "a <= b", "p <= a", "(p - a)*(p - b) == 0")

    @cached_property
    def largest_is_second(self) -> list[Proved]:
        """`a <= b, b <= p, (p - a)*(p - b) == 0 |- p == b`."""
        return self.lemma("p == b", "a <= b", "b <= p", "(p - a)*(p - b) == 0")

    @cached_property
    def largest_below(self) -> list[Proved]:
        """`a <= z, b <= z, (p - a)*(p - b) == 0 |- p <= z`, for `p` the larger of both."""
        facts = ("a <= z", "b <= z", "a <= p", "b <= p", "(p - a)*(p - b) == 0")
        return self.lemma("p <= z", *facts, hints=Hints(ladder=((2, 2, 0), (2, 2, 1))))

    @cached_property
    def divided(self) -> list[Proved]:
        """`x*d <= y, 0 < i, i*d == 1 |- x <= y*i`."""
        return self.lemma("x <= y*i", "x*d <= y", "0 < i", "i*d == 1")

    @cached_property
    def cancelled(self) -> list[Proved]:
        """`x <= y*d, 0 < i, i*d == 1 |- x*i <= y`."""
        return self.lemma("x*i <= y", "x <= y*d", "0 < i", "i*d == 1")

    @cached_property
    def factor_removed(self) -> list[Proved]:
        """`0 < t, x*t <= y*t |- x <= y`."""
        return self.lemma("x <= y", "0 < t", "x*t <= y*t")

    @cached_property
    def capped(self) -> list[Proved]:
        """`0 <= z, 0 <= k, 1 <= k*q, z*q <= y |- z <= k*y`."""
        return self.lemma("z <= k*y", "0 <= z", "0 <= k", "1 <= k*q", "z*q <= y")

    @cached_property
    def split_factor(self) -> list[Proved]:
        """`z <= k*y, r*t == k |- z <= y*r*t`."""
        return self.lemma("z <= y*r*t", "z <= k*y", "r*t == k")

    @cached_property
    def collected(self) -> list[Proved]:
        """`i <= j, x*j <= X, y*j <= Y, j <= J |- a*(C*x + D*y + E)*i <= a*(C*X + D*Y + E*J)`, all nonnegative."""
        c = Context(self.prover, *(f"0 <= {name}" for name in "aCDExy"), "i <= j", "x*j <= X", "y*j <= Y", "j <= J")
        facts = {name: f"0 <= {name}" for name in "aCDExy"}
        facts |= {"i": "i <= j", "X": "x*j <= X", "Y": "y*j <= Y", "J": "j <= J"}
        products = ["a C x i", "a D y i", "a E i", "a C X", "a D Y", "a E J"]
        return c.collect("a*(C*x + D*y + E)*i <= a*(C*X + D*Y + E*J)", facts, products)


def magnitude_of(c: Context, tools: Toolbox, value: Polynomial, bounds: Mapping[Polynomial, Polynomial]) -> Polynomial:
    """Show `|value| <= B` and return B: a sum over monomials, or what is known of the whole polynomial.

    Args:
        c: where it is shown; every variable must be known to be nonnegative or be among the bounds.
        tools: of the same prover.
        value: the polynomial.
        bounds: known bounds, of polynomials with either sign.
    """
    if not value.terms:
        return value
    for known in (value, -value):
        if known in bounds:
            return bounds[known]
    total = Polynomial()
    shown = Polynomial()
    for monomial, coefficient in value.terms:
        part = bound = Polynomial.constant(abs(coefficient))
        for name, exponent in monomial:
            for _ in range(exponent):
                factor = Polynomial.variable(name)
                most = bounds.get(factor, factor)
                if factor not in bounds:
                    c.use(tools.own_magnitude, x=factor)
                c.use(tools.product_magnitude, x=part, a=bound, y=factor, b=most)
                part, bound = part * factor, bound * most
        part = -part if coefficient < 0 else part
        if shown.terms:
            c.use(tools.sum_magnitude, x=shown, a=total, y=part, b=bound)
        shown, total = shown + part, total + bound
    return total
