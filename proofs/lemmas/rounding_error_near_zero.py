"""Relative rounding in the normal range and absolute rounding below it have one common bound.

    e <= u |x|  or  e <= n   =>   e <= u |x| + n

Below the normal range the spacing is constant and n is half of it (2^-150 in binary32). One
inequality for all numbers spares every later lemma a case split. "Or" is written with a
variable c that equals one of the two bounds: (c - u*a)*(c - n) = 0.

The twin fails: at zero (a = 0) the whole of n is needed.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_error_near_zero",
    statement="Relative rounding in the normal range and absolute rounding below it have one common bound.",
    variables={
        "e": "rounding error [x]",
        "a": "magnitude of the number that is rounded [x]",
        "c": "the bound that applies, u*a or n [x]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [x]",
    },
    given=(
        "0 <= u",
        "0 <= n",
        "0 <= a",
        "(c - u*a)*(c - n) == 0",
        "e <= c",
    ),
    then="e <= u*a + n",
    twin="e <= u*a + 0.99*n",
    needed_by=("rounded_operation",),
)
