"""The first moment after a gradient is at most the weighted sum of the magnitudes.

    0 <= w <= 1,  |m| <= n,  |g| <= r   =>   |m + w (g - m)| <= (1 - w) n + w r

Splits the effect of an error in v into the moment's and the gradient's share: the second and
the third term of the guard.

The twin fails: with m = 0 the gradient's whole share is needed.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_bound",
    statement="The first moment after a gradient is at most the weighted sum of the magnitudes.",
    variables={
        "m": "first moment [g]",
        "g": "gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "n": "bound on the magnitude of m [g]",
        "r": "bound on the magnitude of g [g]",
    },
    given=(
        "0 <= w <= 1",
        "abs(m) <= n",
        "abs(g) <= r",
    ),
    then="abs(m + w*(g - m)) <= (1 - w)*n + w*r",
    twin="abs(m + w*(g - m)) <= (1 - w)*n + 0.99*w*r",
    needed_by=("rounding_slack",),
)
