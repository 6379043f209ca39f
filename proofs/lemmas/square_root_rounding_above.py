"""The root of a radicand that is too large by three roundings is too large by 1.5 of them.

    s^2 <= (1 + u)^3 S^2 + e^2   =>   s <= (1 + 3/2 u + 3 u^2) S + e

S is the exact root, s the exact root of the rounded second moment, e the root of its underflow
error (second_moment_rounding). The root halves the relative error, and turns an absolute error
into its root.

The twin fails: 1.4 roundings are too few.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="square_root_rounding_above",
    statement="The root of a radicand that is too large by three roundings is too large by 1.5 of them.",
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
        "s*s <= (1 + u)**3*S*S + e*e",
    ),
    then="s <= (1 + 3/2*u + 3*u*u)*S + e",
    twin="s <= (1 + 1.4*u)*S + e",
    needed_by=("denominator_rounding_rate",),
)
