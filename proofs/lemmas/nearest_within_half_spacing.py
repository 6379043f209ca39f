"""The nearest point of a grid lies within half a spacing.

    |x - r| <= |x - (r + h)|  and  |x - r| <= |x - (r - h)|   =>   |x - r| <= h/2

The neighbours of r on the grid are r - h and r + h. Distances are compared by their squares,
which needs no case split. This and the two lemmas on the error in a binade turn "round to
nearest" into the inequality that all later lemmas assume of one rounding.

The twin fails: half a spacing is attained at a tie, so 0.495 spacings are too few.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="nearest_within_half_spacing",
    statement="The nearest point of a grid lies within half a spacing.",
    variables={
        "x": "number that is rounded [x]",
        "r": "the grid point chosen [x]",
        "h": "spacing of the grid at r [x]",
    },
    given=(
        "0 < h",
        "(x - r)**2 <= (x - r - h)**2",
        "(x - r)**2 <= (x - r + h)**2",
    ),
    then="abs(2*(x - r)) <= h",
    twin="abs(2*(x - r)) <= 0.99*h",
    needed_by=(
        "rounding_error_in_binade",
        "rounding_error_near_zero",
    ),
)
