"""On a cell of gradients the first moment is bounded by its values at the two ends.

    g0 <= g <= g1,  |m + w (g0 - m)| <= K,  |m + w (g1 - m)| <= K   =>   |m + w (g - m)| <= K

The first moment is affine in the gradient, so its magnitude is convex. A cell is an interval of
gradients that the exact guard treats at once.

The twin fails: at the ends themselves nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_on_cell",
    statement="On a cell of gradients the first moment is bounded by its values at the two ends.",
    variables={
        "m": "first moment [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "g": "gradient [g]",
        "g0": "lower end of the cell [g]",
        "g1": "upper end of the cell [g]",
        "K": "bound at both ends [g]",
    },
    given=(
        "0 <= w <= 1",
        "g0 <= g <= g1",
        "abs(m + w*(g0 - m)) <= K",
        "abs(m + w*(g1 - m)) <= K",
    ),
    then="abs(m + w*(g - m)) <= K",
    twin="abs(m + w*(g - m)) <= 0.99*K",
    needed_by=("exact_guard",),
)
