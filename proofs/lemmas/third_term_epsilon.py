"""The third term of the guard is at most the gap of the radicands over 16*eps*A.

    2 A x <= S^2   =>   16 eps A x (1/(S + eps) - 1/(T + eps)) <= T^2 - S^2

The bound P4 = (B^2 - A^2)/(16 eps A), for any gradient and v > 0: (S + eps)^2 >= 4 eps S, and
third_term_epsilon_factor. Best where epsilon exceeds the root of v. Multiplied by the
denominators, which are positive.

The twin fails: where x = A, S = T = eps both sides are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_epsilon",
    statement="The third term of the guard is at most the gap of the radicands over 16*eps*A.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "A": "S without a gradient [g]",
        "d": "difference of the squares, T^2 - S^2 [g^2]",
        "e": "epsilon, the floor of the denominator [g]",
    },
    given=(
        "0 <= S <= T",
        "0 < e",
        "2*A*x <= S*S",
        "T*T == S*S + d",
    ),
    then="16*e*A*x*(T - S) <= d*(S + e)*(T + e)",
    twin="16.2*e*A*x*(T - S) <= d*(S + e)*(T + e)",
    needed_by=("closed_form_guard",),
)
