"""A value that is followed along a bounded slope stays below the start plus the largest rise.

    N = N0 + t B,  0 <= t <= W,  L <= B <= T,  L <= 0 <= T   =>   N0 + W L <= N <= N0 + W T

N0 is the deviation at the low end of a cell, W its width, B the slope to a gradient inside, whose
bounds enter with zero among them.

The twin fails: at the far end with the steepest slope nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="slope_bounds_chord",
    statement="A value that is followed along a bounded slope stays below the start plus the largest rise.",
    variables={
        "N0": "value at the low end [1]",
        "t": "distance from the low end [g]",
        "B": "slope of the chord [1/g]",
        "W": "width of the cell [g]",
        "L": "at most the slope, and not positive [1/g]",
        "T": "at least the slope, and not negative [1/g]",
    },
    given=(
        "0 <= t <= W",
        "L <= B <= T",
        "L <= 0",
        "0 <= T",
    ),
    then="N0 + W*L <= N0 + t*B <= N0 + W*T",
    twin="N0 + W*L <= N0 + t*B <= N0 + 0.99*W*T",
    needed_by=("worst_case",),
)
