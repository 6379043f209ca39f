"""A product of three factors that shrink is largest at the low end and least at the high end.

    0 <= p1 <= p <= p0,  0 <= q1 <= q <= q0,  0 <= r1 <= r <= r0
      =>   p1 q1 r1 <= p q r <= p0 q0 r0

The factors are reciprocals, reciprocals of sums of roots and gaps between them, each of which
shrinks as the gradient grows (roots_are_ordered, square_root_gap_decreases,
reciprocal_gap_decreases).

The twin fails: at the low end nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="slope_share_shrinks",
    statement="A product of three factors that shrink is largest at the low end and least at the high end.",
    variables={
        "p": "first factor [x]",
        "p0": "at the low end [x]",
        "p1": "at the high end [x]",
        "q": "second factor [y]",
        "q0": "at the low end [y]",
        "q1": "at the high end [y]",
        "r": "third factor [z]",
        "r0": "at the low end [z]",
        "r1": "at the high end [z]",
    },
    given=(
        "0 <= p1 <= p",
        "p <= p0",
        "0 <= q1 <= q",
        "q <= q0",
        "0 <= r1 <= r",
        "r <= r0",
    ),
    then="p1*q1*r1 <= p*q*r <= p0*q0*r0",
    twin="p1*q1*r1 <= p*q*r <= 0.99*p0*q0*r0",
    needed_by=("worst_case",),
)
