"""On a cell, first moment times gap is at most the moment's bound times the largest gap.

    |M| <= K,  0 <= D <= D0   =>   |M D| <= K D0

D is the gap between the reciprocals of the two denominators, largest at the end nearest to zero
(reciprocal_gap_decreases), K the larger of the two end values of the first moment
(first_moment_on_cell).

The twin fails: where both factors are at their bounds nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gap_on_cell",
    statement="On a cell, first moment times gap is at most the moment's bound times the largest gap.",
    variables={
        "M": "first moment after the gradient [g]",
        "K": "bound on the magnitude of M [g]",
        "D": "gap between the reciprocals [1/g]",
        "D0": "gap at the near end of the cell [1/g]",
    },
    given=(
        "abs(M) <= K",
        "0 <= D <= D0",
    ),
    then="abs(M*D) <= K*D0",
    twin="abs(M*D) <= 0.99*K*D0",
    needed_by=("exact_guard",),
)
