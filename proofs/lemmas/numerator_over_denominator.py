"""The first moment over the denominator has one bound for all gradients.

    |M| <= (1 - w) n + w r,  w r <= w c D,  D >= D0 > 0   =>   |M| / D <= (1 - w) n / D0 + w c

M is the first moment after the gradient, n a bound on |m|, r on |g|, D0 the denominator without
a gradient, and c = b/sqrt(k) from gradient_over_denominator. The right-hand side enters as kM
with kM*D0 known: it is kM of the rounding slack.

The twin fails: both terms can be attained together, so no hundredth is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="numerator_over_denominator",
    statement="The first moment over the denominator has one bound for all gradients.",
    variables={
        "M": "first moment after the gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "n": "bound on the magnitude of m [g]",
        "r": "magnitude of the gradient [g]",
        "D": "denominator of the update [g]",
        "D0": "denominator without a gradient [g]",
        "c": "bound b/sqrt(k) on r/D [1]",
        "kM": "the bound on |M|/D [1]",
    },
    given=(
        "0 <= w <= 1",
        "0 <= n",
        "0 <= r",
        "0 < D0 <= D",
        "abs(M) <= (1 - w)*n + w*r",
        "w*r <= w*c*D",
        "kM*D0 == (1 - w)*n + w*c*D0",
    ),
    then="abs(M) <= kM*D",
    twin="abs(M) <= 0.99*kM*D",
    needed_by=(
        "update_rounding_fused",
        "update_rounding_separate",
    ),
)
