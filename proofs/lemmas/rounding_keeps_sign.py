"""What is not negative is not rounded to a negative number.

    0 <= x,  |r - x| <= |0 - x|   =>   0 <= r

Zero is in every format, so the nearest number of the format is no further from x than zero is. Distances are compared
by their squares. By this the rounded second moment has a square root.

The twin fails: zero is as near to x as twice x is, and both may be the rounded number as far as this says.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_keeps_sign",
    statement="What is not negative is not rounded to a negative number.",
    variables={
        "x": "number that is rounded [x]",
        "r": "the rounded number [x]",
    },
    given=("0 <= x", "(r - x)**2 <= x**2"),
    then="0 <= r",
    twin="0.01*x <= r",
    needed_by=("rounding_slack",),
)
