"""The third term of the guard is at most half the gap of the radicands over both denominators.

    x (1/(S + eps) - 1/(T + eps)) <= (B^2 - A^2) / (2 (A + eps)(B + eps))

The bound P2, for any gradient: best where the relative error of v is small. From x <= S <= T
follows 2x(T - S) <= T^2 - S^2, and the denominators only grow with the gradient. Multiplied by
the denominators, which are positive.

The twin fails: where x = S, as the gap of the radicands vanishes, the bound is approached.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_radicand_gap",
    statement="The third term of the guard is at most half the gap of the radicands over both denominators.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "A": "S without a gradient [g]",
        "B": "T without a gradient [g]",
        "d": "difference of the squares, T^2 - S^2 [g^2]",
        "e": "epsilon, the floor of the denominator [g]",
    },
    given=(
        "0 <= x <= S <= T",
        "0 <= A <= S",
        "A <= B <= T",
        "0 < e",
        "T*T == S*S + d",
    ),
    then="2*x*(T - S)*(A + e)*(B + e) <= d*(S + e)*(T + e)",
    twin="2.02*x*(T - S)*(A + e)*(B + e) <= d*(S + e)*(T + e)",
    needed_by=("closed_form_guard",),
)
