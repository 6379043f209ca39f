"""In the binade that starts at s, an error of at most s*u is at most u times the number.

    0 < s <= |x|,  |r - x| <= s*u   =>   |r - x| <= u |x|

The spacing in the binade [s, 2s] is 2*u*s, with u the unit roundoff (2^-24 in binary32), so
rounding to nearest errs by at most s*u. This makes the error relative to the number. The
magnitude of x enters as a with a*a = x*x.

The twin fails: at the start of a binade (a = s) the bound is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_error_in_binade",
    statement="In the binade that starts at s, an error of at most s*u is at most u times the number.",
    variables={
        "x": "number that is rounded [x]",
        "r": "the rounded number [x]",
        "a": "magnitude of x [x]",
        "s": "start of the binade, a power of two [x]",
        "u": "unit roundoff [1]",
    },
    given=(
        "0 < s",
        "0 <= u",
        "0 <= a",
        "a*a == x*x",
        "s <= a",
        "abs(r - x) <= s*u",
    ),
    then="abs(r - x) <= u*a",
    twin="abs(r - x) <= 0.99*u*a",
    needed_by=("rounding_error_near_zero",),
)
