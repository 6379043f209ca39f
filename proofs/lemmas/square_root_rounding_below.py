"""The root of a radicand that is too small by three roundings is too small by 1.5 of them.

    s^2 >= (2 - (1 + u)^3) S^2 - e^2   =>   s >= (1 - 3/2 u - 3 u^2) S - e

The mirror image of square_root_rounding_above: the error of the second moment has either sign.
2 - (1 + u)^3 is one minus the relative error.

The twin fails: 1.4 roundings are too few.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="square_root_rounding_below",
    statement="The root of a radicand that is too small by three roundings is too small by 1.5 of them.",
    variables={
        "s": "root of the rounded second moment [g]",
        "S": "root of the exact second moment [g]",
        "e": "root of the underflow error [g]",
        "u": "unit roundoff [1]",
    },
    given=(
        "0 < u <= 1/1024",
        "0 <= s",
        "0 <= S",
        "0 <= e",
        "s*s >= (2 - (1 + u)**3)*S*S - e*e",
    ),
    then="s >= (1 - 3/2*u - 3*u*u)*S - e",
    twin="s >= (1 - 1.4*u)*S - e",
    needed_by=("denominator_rounding_rate",),
)
