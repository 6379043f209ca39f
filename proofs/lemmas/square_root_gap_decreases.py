"""The gap between two square roots shrinks as both radicands grow by the same amount.

    0 <= y1 <= y2, d >= 0   =>   sqrt(y1 + d) - sqrt(y1) >= sqrt(y2 + d) - sqrt(y2)

The square root is concave. Roots enter as s*s = y, s >= 0, and d as the common difference of
the squares.

The twin fails: for equal radicands the gaps are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="square_root_gap_decreases",
    statement="The gap between two square roots shrinks as both radicands grow by the same amount.",
    variables={
        "s1": "root of the smaller radicand y1 [g]",
        "s2": "root of the larger radicand y2 [g]",
        "t1": "root of y1 + d [g]",
        "t2": "root of y2 + d [g]",
    },
    given=(
        "0 <= s1 <= s2",
        "s1 <= t1",
        "0 <= t2",
        "t1*t1 - s1*s1 == t2*t2 - s2*s2",
    ),
    then="t1 - s1 >= t2 - s2",
    twin="t1 - s1 >= 1.01*(t2 - s2)",
    needed_by=("third_term_root_gap",),
)
