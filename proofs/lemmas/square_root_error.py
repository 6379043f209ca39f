"""A square root takes half the relative error of its radicand, and the root of its absolute error.

    |y - S^2| <= k S^2 + E,  0 <= k <= 1,  E <= e^2,  s^2 = y   =>   |s - S| <= (k/2 + k^2/2) S + e

The radicand is the rounded second moment: k counts its roundings, E what underflow added.  The rounding of the root
itself is rounded_operation.

The twin fails: half the relative error is the least possible.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="square_root_error",
    statement="A square root takes half the relative error of its radicand, and the root of its absolute error.",
    variables={
        "y": "rounded radicand [g^2]",
        "s": "root of the rounded radicand [g]",
        "S": "exact root [g]",
        "k": "relative error of the radicand [1]",
        "E": "absolute error of the radicand [g^2]",
        "e": "a number at least the root of E [g]",
    },
    given=(
        "0 <= k <= 1",
        "0 <= s",
        "0 <= S",
        "0 <= e",
        "E <= e*e",
        "s*s == y",
        "abs(y - S*S) <= k*S*S + E",
    ),
    then="abs(s - S) <= (k/2 + k*k/2)*S + e",
    twin="abs(s - S) <= 0.49*k*S + e",
    needed_by=("rounding_slack",),
)
