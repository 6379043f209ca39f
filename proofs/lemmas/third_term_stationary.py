"""The third term of the guard is at most its value at the gradient that is worst if eps = 0.

    p^2 <= 4 S^6   =>   p (1/(S + eps) - 1/(T + eps)) <= T^2 - S^2

The bound P3 = (B^2 - A^2)/(3 sqrt(3) A^2), for any gradient and v > 0: with p = 3 sqrt(3) A^2
x, whose square third_term_stationary_factor bounds, and T^2 - S^2 = B^2 - A^2. The best of the
five for small errors where epsilon is negligible. Multiplied by the denominators, which are
positive.

The twin fails: as the gap of the roots and epsilon vanish the bound is approached.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_stationary",
    statement="The third term of the guard is at most its value at the gradient that is worst if eps = 0.",
    variables={
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "d": "difference of the squares, T^2 - S^2 [g^2]",
        "e": "epsilon, the floor of the denominator [g]",
        "p": "3*sqrt(3)*A^2*x [g^3]",
    },
    given=(
        "0 <= S <= T",
        "0 < e",
        "p*p <= 4*S**6",
        "T*T == S*S + d",
    ),
    then="p*(T - S) <= d*(S + e)*(T + e)",
    twin="1.01*p*(T - S) <= d*(S + e)*(T + e)",
    needed_by=("closed_form_guard",),
)
