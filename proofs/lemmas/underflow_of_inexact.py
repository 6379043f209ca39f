"""Where the exact value is normal, a result that underflows by its operands' error needs no allowance.

    P - A <= s <= Q + A,  |f - s| <= e,  e <= u P,  0 <= P <= Q,  0 <= u < 1,  T (1 - u) = 1
        =>   P (1 - u) - T A <= f <= T (Q + A)

In the words of `rounding_of_inexact`: s may be subnormal although P is normal, if A is that large.  Then f errs by half
the smallest subnormal, e, which is at most the relative rounding of P.

The twin fails: that rounding is there.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="underflow_of_inexact",
    statement="Where the exact value is normal, a result that underflows by its operands' error needs no allowance.",
    variables={
        "s": "exact result on computed operands [1]",
        "f": "rounded result [1]",
        "P": "lower bound of s, but for the error [1]",
        "Q": "upper bound of s, but for the error [1]",
        "A": "absolute error that s carries [1]",
        "u": "unit roundoff [1]",
        "T": "1/(1 - u) [1]",
        "e": "half the smallest subnormal [1]",
    },
    given=(
        "P - A <= s <= Q + A",
        "0 <= P <= Q",
        "0 <= A",
        "abs(f - s) <= e",
        "e <= u*P",
        "0 <= u",
        "u < 1",
        "T*(1 - u) == 1",
    ),
    then="P*(1 - u) - T*A <= f <= T*(Q + A)",
    twin="P*(1 - u) - T*A <= f <= Q + T*A",
    needed_by=("binary32_filter",),
)
