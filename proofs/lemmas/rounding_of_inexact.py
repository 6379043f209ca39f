"""A rounding enlarges the absolute error of its operands by no more than the factor of one rounding.

    P - A <= s <= Q + A,  0 <= s,  |f - s| <= u s + e,  0 <= u < 1,  T (1 - u) = 1
        =>   P (1 - u) - T A - e <= f <= T (Q + A) + e

s is the exact result on computed operands, which lies between P and Q but for their absolute error A; f is the rounded
result; e is half the smallest subnormal, or 0 where nothing underflows.  Relative roundings are counted: one more makes
P (1 - u) and T Q of P and Q.

The twin fails: the error is rounded with the rest.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_of_inexact",
    statement="A rounding enlarges the absolute error of its operands by no more than the factor of one rounding.",
    variables={
        "s": "exact result on computed operands, not negative [1]",
        "f": "rounded result [1]",
        "P": "lower bound of s, but for the error [1]",
        "Q": "upper bound of s, but for the error [1]",
        "A": "absolute error that s carries [1]",
        "u": "unit roundoff [1]",
        "T": "1/(1 - u) [1]",
        "e": "half the smallest subnormal, or 0 [1]",
    },
    given=(
        "P - A <= s <= Q + A",
        "0 <= s",
        "0 <= A",
        "abs(f - s) <= u*s + e",
        "0 <= u",
        "u < 1",
        "T*(1 - u) == 1",
    ),
    then="P*(1 - u) - T*A - e <= f <= T*(Q + A) + e",
    twin="P*(1 - u) - T*A - e <= f <= T*Q + A + e",
    needed_by=("binary32_filter",),
)
