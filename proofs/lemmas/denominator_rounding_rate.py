"""The binary32 denominator of the update errs by at most 4.51 unit roundoffs.

    u = 2^-24, 0 <= a <= u/200   =>   (1 + 3/2 u + 3 u^2)(1 + u)^3 - 1 + a <= 4.51 u

1.5 roundings come through the square root, one each from the root itself, the division by b and
the addition of epsilon (rounded_operation, three times); a is what underflow adds
(denominator_absolute_error). A platform root that errs by more than u needs another constant.

The twin fails: four and a half roundings alone are too few.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="denominator_rounding_rate",
    statement="The binary32 denominator of the update errs by at most 4.51 unit roundoffs.",
    variables={
        "u": "unit roundoff of binary32 [1]",
        "a": "relative error added by underflow [1]",
    },
    given=(
        "u == 2**-24",
        "0 <= a <= u/200",
    ),
    then="(1 + 3/2*u + 3*u*u)*(1 + u)**3 - 1 + a <= 4.51*u",
    twin="(1 + 3/2*u + 3*u*u)*(1 + u)**3 - 1 + a <= 4.5*u",
    needed_by=("quotient_error",),
)
