"""The gradient's share of the second moment is bounded by a power of the whole.

    W >= 0, y >= 0   =>   27 W^2 y <= 4 (W + y)^3

The inequality of arithmetic and geometric means for W/2, W/2 and y; equal at 2 y = W, where
sqrt(y)/(W + y)^(3/2) is largest. First half of the bound P3, with W = A^2 and y = x^2, so that
W + y = S^2.

The twin fails: at 2 y = W both sides are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_stationary_factor",
    statement="The gradient's share of the second moment is bounded by a power of the whole.",
    variables={
        "W": "radicand without a gradient, beta2*v/b^2 [g^2]",
        "y": "square of the scaled gradient, k*g^2/b^2 [g^2]",
    },
    given=(
        "0 <= W",
        "0 <= y",
    ),
    then="27*W**2*y <= 4*(W + y)**3",
    twin="27.01*W**2*y <= 4*(W + y)**3",
    needed_by=("third_term_stationary",),
)
