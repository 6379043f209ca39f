"""The slope of a reciprocal between two gradients is a share of their sum.

    S(x)^2 = Y + c x^2,  H = 1/(S + e)
      =>   (H(a) - H(x)) (S(a) + S(x)) = (x - a) c (a + x) H(a) H(x)

Y is beta2 v/b^2, c the curvature, e epsilon. Divided by x - a and by the sum of the roots this is
the slope of the reciprocal along a chord from the low end a of a cell, in terms whose order is
known (slope_share_shrinks).

The twin fails: the sides are equal, and positive for x > a > 0.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="slope_of_reciprocal",
    statement="The slope of a reciprocal between two gradients is a share of their sum.",
    variables={
        "a": "magnitude of the gradient at the low end [g]",
        "x": "magnitude of a gradient of the cell [g]",
        "c": "curvature of the radicand [1]",
        "Y": "radicand without a gradient [g^2]",
        "e": "epsilon [g]",
        "S": "root at a [g]",
        "T": "root at x [g]",
        "H": "reciprocal of the denominator at a [1/g]",
        "K": "reciprocal of the denominator at x [1/g]",
    },
    given=(
        "S*S == Y + c*a*a",
        "T*T == Y + c*x*x",
        "H*(S + e) == 1",
        "K*(T + e) == 1",
    ),
    then="(H - K)*(S + T) == (x - a)*c*(a + x)*H*K",
    twin="(H - K)*(S + T) == 1.01*(x - a)*c*(a + x)*H*K",
    needed_by=("worst_case",),
)
