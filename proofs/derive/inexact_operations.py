"""The derivations of the lemmas about operations on numbers that carry absolute errors, which underflow leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from guarded_moments.proofs.derive.context import Context


def product_of_inexact(c: Context) -> None:
    """Each error once, times what is left of the other number."""
    facts = {"x": "0 <= x", "y": "0 <= y", "Q1": "0 <= Q1", "P2": "0 <= P2", "a": "0 <= a", "b": "0 <= b"}
    facts |= {"x_most": "x <= Q1 + a", "y_most": "y <= Q2 + b", "A": "Q1 <= A", "B": "y <= B"}
    c.collect("x*y <= Q1*Q2 + (a*B + b*A)", facts, ["x_most y", "Q1 y_most", "a B", "b A"])
    facts |= {"x_least": "P1 - a <= x", "y_least": "P2 - b <= y", "A": "x <= A", "B": "P2 <= B"}
    c.collect("P1*P2 - (a*B + b*A) <= x*y", facts, ["x_least P2", "x y_least", "a B", "b A"])


def quotient_of_inexact(c: Context) -> None:
    """First times the divisor, which is positive."""
    c.by("0 < y", "0 < L", "L <= y")
    facts = {"h": "0 <= h", "c": "0 <= c", "P2": "P2 <= y", "L": "L <= y", "most": "x <= Q1 + a"}
    facts |= {"q": "q*y == x", "hP": "h*P2 == Q1", "cL": "c*L == a"}
    c.collect("0 <= (h + c - q)*y", facts, ["h P2", "c L", "most"])
    facts = {"l": "0 <= l", "c": "0 <= c", "Q2": "y <= Q2", "L": "L <= y", "least": "P1 - a <= x"}
    facts |= {"q": "q*y == x", "lQ": "l*Q2 == P1", "cL": "c*L == a"}
    c.collect("0 <= (q - l + c)*y", facts, ["l Q2", "c L", "least"])
    positive = c.prover.lemma("0 <= z", "0 <= z*y", "0 < y")
    c.use(positive, z="h + c - q")
    c.use(positive, z="q - l + c")
    c.by("q <= h + c", "0 <= h + c - q")
    c.by("l - c <= q", "0 <= q - l + c")


def rounding_of_inexact(c: Context) -> None:
    """One rounding's factor is at least `1 + u`."""
    _factor(c)
    facts = {"T": "1 + u <= T", "most": "s <= Q + A", "s": "0 <= s", "u": "0 <= u", "f": "f - s <= u*s + e"}
    c.collect("f <= T*(Q + A) + e", facts, ["T most", "T s", "most", "most u", "f"])
    facts = {"T": "1 + u <= T", "least": "P - A <= s", "A": "0 <= A", "u": "0 <= u", "w": "u < 1"}
    facts |= {"f": "s - f <= u*s + e"}
    c.collect("P*(1 - u) - T*A - e <= f", facts, ["w least", "T A", "u A", "f"])


def underflow_of_inexact(c: Context) -> None:
    """Likewise."""
    _factor(c)
    facts = {"T": "1 + u <= T", "most": "s <= Q + A", "PQ": "P <= Q", "P": "0 <= P", "A": "0 <= A", "u": "0 <= u"}
    facts |= {"f": "f - s <= e", "e": "e <= u*P"}
    c.collect("f <= T*(Q + A)", facts, ["T PQ", "T P", "T A", "u PQ", "u A", "most", "f", "e"])
    facts |= {"least": "P - A <= s", "f": "s - f <= e"}
    c.collect("P*(1 - u) - T*A <= f", facts, ["least", "T A", "u A", "f", "e"])


def _factor(c: Context) -> None:
    c.use(c.prover.lemma("0 < q", "0 <= d", "q*d == 1"), q="T", d="1 - u")
    facts = {"T": "0 < T", "u": "0 <= u", "one": "T*(1 - u) == 1"}
    c.collect("1 + u <= T", facts, ["T u u"])


STEPS: Mapping[str, Callable[[Context], None]] = MappingProxyType(
    {
        "product_of_inexact": product_of_inexact,
        "quotient_of_inexact": quotient_of_inexact,
        "rounding_of_inexact": rounding_of_inexact,
        "underflow_of_inexact": underflow_of_inexact,
    }
)
