"""The error of a first moment shrinks with the moment, and each update adds its own.

    |M| <= A,  |m - M| <= Z,  |y - (b m + s)| <= e |m| + f   =>   |y - (b M + s)| <= b Z + e (A + Z) + f

m is the binary32 moment before an update and M the formula's, y the binary32 moment after it; s is the weighted
gradient, whose rounding is in f.

The twin fails: where every rounding errs upwards as far as it may, it is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_error_grows",
    statement="The error of a first moment shrinks with the moment, and each update adds its own.",
    variables={
        "m": "first moment before the update [g]",
        "M": "the same of the formula [g]",
        "y": "first moment after the update [g]",
        "b": "1 - w [1]",
        "s": "weighted gradient [g]",
        "n": "magnitude of m [g]",
        "A": "bound on the magnitude of M [g]",
        "Z": "error before [g]",
        "e": "relative error of the update alone [1]",
        "f": "what does not depend on m of it [g]",
    },
    given=(
        "0 <= b",
        "0 <= e",
        "abs(M) <= A",
        "abs(m - M) <= Z",
        "n*n == m*m",
        "abs(y - (b*m + s)) <= e*n + f",
    ),
    then="abs(y - (b*M + s)) <= b*Z + e*(A + Z) + f",
    twin="abs(y - (b*M + s)) <= 0.99*b*Z + e*(A + Z) + f",
    needed_by=("later_updates",),
)
