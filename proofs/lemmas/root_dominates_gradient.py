"""The scaled gradient is at most the root of the second moment that contains it.

    S >= 0, W >= 0,  S^2 = W + x^2   =>   x <= S

S = sqrt(beta2*v + k*g*g)/b, W = beta2*v/b^2 and x = sqrt(k)*|g|/b. So a gradient in the
numerator is paid for by the denominator, which is why bounds without any bound on the gradient
exist.

The twin fails: for v = 0 the two are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="root_dominates_gradient",
    statement="The scaled gradient is at most the root of the second moment that contains it.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the second moment over b [g]",
        "W": "radicand without a gradient [g^2]",
    },
    given=(
        "0 <= S",
        "0 <= W",
        "S*S == W + x*x",
    ),
    then="x <= S",
    twin="1.01*x <= S",
    needed_by=(
        "third_term_root_gap",
        "third_term_radicand_gap",
    ),
)
