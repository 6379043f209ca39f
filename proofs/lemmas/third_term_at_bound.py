"""The third term of the guard is at most its gap without a gradient times the largest gradient.

    0 <= x <= X   =>   x (1/(S + eps) - 1/(T + eps)) <= X (1/(A + eps) - 1/(B + eps))

The first of five bounds P0 to P4 on the third term, the effect sup |g| |Hh - H| of an error in
v on the gradient's share of the update, and the only one with the bound G on the gradient in
it: X = sqrt(k)*G/b. All five bound x |Hh - H| with x = q|g| and q = sqrt(k)/b; the least of
them, over q, is the term P of the guard. The inequality is multiplied by the four denominators,
which are positive; that a gradient adds x^2 to the radicand is not needed.

The twin fails: for gradients that are small beside v the two sides are nearly equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_at_bound",
    statement="The third term of the guard is at most its gap without a gradient times the largest gradient.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "S": "root of the smaller second moment over b [g]",
        "T": "root of the larger second moment over b [g]",
        "A": "S without a gradient [g]",
        "B": "T without a gradient [g]",
        "e": "epsilon, the floor of the denominator [g]",
        "X": "bound on the scaled gradient [g]",
    },
    given=(
        "0 <= x <= X",
        "0 <= A <= S",
        "A <= B",
        "S <= T",
        "B <= T",
        "0 < e",
        "T*T - S*S == B*B - A*A",
    ),
    then="x*(T - S)*(A + e)*(B + e) <= X*(B - A)*(S + e)*(T + e)",
    twin="1.01*x*(T - S)*(A + e)*(B + e) <= X*(B - A)*(S + e)*(T + e)",
    needed_by=("closed_form_guard",),
)
