"""A rounded result errs by its own rounding and by what its operands bring, enlarged by it.

    |X| <= K,  |x - X| <= z,  |r - x| <= u |x| + n   =>   |r - X| <= u K + (1 + u) z + n

X is the value with no rounding at all, x the exact result of the operation on operands already
rounded, r the rounded result. Every step of the Adam update that is not a square root or a
quotient is an instance: with K = X and z = kappa X + A it compounds a relative error kappa to
(1 + kappa)(1 + u) - 1.

The twin fails: without the factor 1 + u the rounding of the inherited error z is forgotten.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounded_operation",
    statement="A rounded result errs by its own rounding and by what its operands bring, enlarged by it.",
    variables={
        "X": "value without any rounding [x]",
        "x": "exact result on rounded operands [x]",
        "r": "rounded result [x]",
        "a": "magnitude of x [x]",
        "K": "bound on the magnitude of X [x]",
        "z": "bound on the error that x carries [x]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [x]",
    },
    given=(
        "0 <= u",
        "0 <= n",
        "abs(X) <= K",
        "abs(x - X) <= z",
        "0 <= a",
        "a*a == x*x",
        "abs(r - x) <= u*a + n",
    ),
    then="abs(r - X) <= u*K + (1 + u)*z + n",
    twin="abs(r - X) <= u*K + z + n",
    needed_by=(
        "denominator_rounding_rate",
        "first_moment_rounding_fused",
        "first_moment_rounding_separate",
        "quotient_error",
        "rounding_slack",
    ),
)
