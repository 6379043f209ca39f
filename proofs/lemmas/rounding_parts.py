"""An error within a relative and an absolute bound is the sum of a relative and an absolute part.

    |r - x| <= u x + n   =>   r = x + x d + h  with  |d| <= u,  |h| <= n
    d = (r - x) u / (u x + n),  h = (r - x) n / (u x + n)

for x >= 0; of negative numbers the same holds of -x and -r. So the standard model, in which the later lemmas write one
rounding, says no more than the inequality that rounding to nearest gives. The reciprocal of u x + n enters as i.

The twin fails: where n is zero, the relative part is all of the error.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_parts",
    statement="An error within a relative and an absolute bound is the sum of a relative and an absolute part.",
    variables={
        "x": "magnitude of the number that is rounded [x]",
        "r": "the rounded number, with the sign of x taken out [x]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [x]",
        "i": "reciprocal of the bound [1/x]",
    },
    given=("0 <= x", "0 <= u", "0 <= n", "abs(r - x) <= u*x + n", "i*(u*x + n) == 1"),
    then="r == x + x*((r - x)*u*i) + (r - x)*n*i and abs((r - x)*u*i) <= u and abs((r - x)*n*i) <= n",
    twin="abs((r - x)*u*i) <= 0.99*u",
    needed_by=("rounded_operation",),
)
