"""The weighted difference g - m over the denominator has one bound for all gradients.

    |d| <= n + r,  w r <= w c D,  D >= D0 > 0   =>   w |d| / D <= w n / D0 + w c

d = g - m is what the first moment moves by; its rounding error is relative to it. The right-
hand side enters as kR with kR*D0 known: it is kR of the rounding slack.

The twin fails: both terms can be attained together, so no hundredth is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gradient_distance_over_denominator",
    statement="The weighted difference g - m over the denominator has one bound for all gradients.",
    variables={
        "d": "gradient minus first moment [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "n": "bound on the magnitude of m [g]",
        "r": "magnitude of the gradient [g]",
        "D": "denominator of the update [g]",
        "D0": "denominator without a gradient [g]",
        "c": "bound b/sqrt(k) on r/D [1]",
        "kR": "the bound on w*|d|/D [1]",
    },
    given=(
        "0 <= w",
        "0 <= n",
        "0 <= r",
        "0 < D0 <= D",
        "abs(d) <= n + r",
        "w*r <= w*c*D",
        "kR*D0 == w*n + w*c*D0",
    ),
    then="abs(w*d) <= kR*D",
    twin="abs(w*d) <= 0.99*kR*D",
    needed_by=(
        "update_rounding_fused",
        "update_rounding_separate",
    ),
)
