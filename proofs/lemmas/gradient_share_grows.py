"""The gradient's share of the denominator grows with the gradient.

    0 <= a <= x,  S(x) = sqrt(Y + c x^2)   =>   a (S(x) + e) <= x (S(a) + e)

Divided by both denominators: a H(a) <= x H(x). So on a cell the rounding that is in proportion to
|g| H(g) is largest at its high end.

The twin fails: for a = x the sides are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gradient_share_grows",
    statement="The gradient's share of the denominator grows with the gradient.",
    variables={
        "a": "magnitude of the gradient at the low end [g]",
        "x": "magnitude of a larger gradient [g]",
        "c": "curvature of the radicand [1]",
        "Y": "radicand without a gradient [g^2]",
        "e": "epsilon [g]",
        "S": "root at a [g]",
        "T": "root at x [g]",
    },
    given=(
        "0 <= a <= x",
        "0 <= c",
        "0 <= Y",
        "0 < e",
        "0 <= S",
        "0 <= T",
        "S*S == Y + c*a*a",
        "T*T == Y + c*x*x",
    ),
    then="a*(T + e) <= x*(S + e)",
    twin="1.01*a*(T + e) <= x*(S + e)",
    needed_by=("worst_case",),
)
