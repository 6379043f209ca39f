"""The roots of two second moments, with and without a gradient, are in the expected order.

    S^2 = A^2 + x^2,  B^2 = A^2 + d,  T^2 = S^2 + d,  d >= 0   =>   A <= S <= T  and  A <= B <= T

A gradient and an error in v both raise the radicand, and the root keeps the order. The
hypotheses on the order of roots in the bounds on the third term come from here.

The twin fails: without a gradient S and A are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="roots_are_ordered",
    statement="The roots of two second moments, with and without a gradient, are in the expected order.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "A": "S without a gradient [g]",
        "B": "T without a gradient [g]",
        "d": "difference of the squares, T^2 - S^2 [g^2]",
    },
    given=(
        "0 <= S",
        "0 <= T",
        "0 <= A",
        "0 <= B",
        "0 <= d",
        "S*S == A*A + x*x",
        "T*T == S*S + d",
        "B*B == A*A + d",
    ),
    then="A <= S <= T and A <= B <= T",
    twin="A < S <= T and A <= B <= T",
    needed_by=(
        "square_root_gap_decreases",
        "reciprocal_gap_decreases",
        "third_term_at_bound",
        "third_term_root_gap",
        "third_term_radicand_gap",
        "third_term_stationary",
        "third_term_epsilon",
    ),
)
