"""The gap between two reciprocals shrinks as both radicands grow by the same amount.

    0 <= y1 <= y2, d >= 0, eps > 0,  h(y) = 1/(sqrt(y) + eps)
      =>   h(y1) - h(y1 + d) >= h(y2) - h(y2 + d)

y is the second moment over b^2, h(y) the reciprocal of the denominator. So the effect of an
error in v is largest without a gradient, and monotone in |g|: a cell of gradients is bounded by
its ends. Roots enter as s*s = y, s >= 0, d as the common difference of the squares, and the
inequality is multiplied by the four denominators, which are positive.

The twin fails: for equal radicands the gaps are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="reciprocal_gap_decreases",
    statement="The gap between two reciprocals shrinks as both radicands grow by the same amount.",
    variables={
        "s1": "root of the smaller radicand y1 [g]",
        "s2": "root of the larger radicand y2 [g]",
        "t1": "root of y1 + d [g]",
        "t2": "root of y2 + d [g]",
        "e": "epsilon, the floor of the denominator [g]",
    },
    given=(
        "0 <= s1 <= s2",
        "s1 <= t1",
        "0 <= t2",
        "0 < e",
        "t1*t1 - s1*s1 == t2*t2 - s2*s2",
    ),
    then="(t1 - s1)*(s2 + e)*(t2 + e) >= (t2 - s2)*(s1 + e)*(t1 + e)",
    twin="(t1 - s1)*(s2 + e)*(t2 + e) >= 1.01*(t2 - s2)*(s1 + e)*(t1 + e)",
    needed_by=(
        "third_term_at_bound",
        "gap_on_cell",
        "exact_guard",
    ),
)
