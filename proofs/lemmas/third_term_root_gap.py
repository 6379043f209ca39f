"""The third term of the guard is at most the gap of the roots over the larger denominator.

    x (1/(S + eps) - 1/(T + eps)) <= (B - A)/(B + eps)

The bound P1, for any gradient: best where v is small and its error large. It follows from
root_dominates_gradient (x <= S), from the order of the roots and from square_root_gap_decreases
(T - S <= B - A). Multiplied by the denominators, which are positive.

The twin fails: with v = 0, as epsilon vanishes, the bound is approached.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_root_gap",
    statement="The third term of the guard is at most the gap of the roots over the larger denominator.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "A": "S without a gradient [g]",
        "B": "T without a gradient [g]",
        "e": "epsilon, the floor of the denominator [g]",
    },
    given=(
        "0 <= x <= S <= T",
        "0 <= A <= B <= T",
        "A <= S",
        "0 < e",
        "T - S <= B - A",
    ),
    then="x*(T - S)*(B + e) <= (B - A)*(S + e)*(T + e)",
    twin="1.01*x*(T - S)*(B + e) <= (B - A)*(S + e)*(T + e)",
    needed_by=("closed_form_guard",),
)
