"""The gradient's share of the update is bounded for all gradients together.

    D = S/b + eps,  q g <= S   =>   w g / D <= w b / q

Here q = sqrt(k), so the hypothesis on S is root_dominates_gradient times b. The quotients are
cleared: D is positive. This is the term w*b/sqrt(k) of the rounding slack, free of any bound on
the gradient.

The twin fails: as v and eps vanish the bound is approached.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gradient_over_denominator",
    statement="The gradient's share of the update is bounded for all gradients together.",
    variables={
        "w": "weight of the gradient, 1 - beta1 [1]",
        "g": "magnitude of the gradient [g]",
        "b": "root of the bias correction [1]",
        "e": "epsilon, the floor of the denominator [g]",
        "q": "root of the weight of the squared gradient [1]",
        "S": "root of the second moment [g]",
        "D": "denominator of the update [g]",
    },
    given=(
        "0 <= w",
        "0 <= g",
        "0 < b",
        "0 < e",
        "0 < q",
        "0 <= S",
        "q*g <= S",
        "D*b == S + e*b",
    ),
    then="w*g*q <= w*b*D",
    twin="1.01*w*g*q <= w*b*D",
    needed_by=(
        "numerator_over_denominator",
        "gradient_distance_over_denominator",
    ),
)
