"""An absolute error that is small beside epsilon is relatively small in the denominator.

    eps > 0, D >= eps, a >= 0,  A <= a eps   =>   A <= a D

The denominator never falls below epsilon, so what underflow adds to it can be counted as a
relative error a.

The twin fails: for v = 0 and g = 0 the denominator is epsilon and the bound is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="absolute_error_below_epsilon",
    statement="An absolute error that is small beside epsilon is relatively small in the denominator.",
    variables={
        "A": "absolute error of the denominator [g]",
        "D": "denominator [g]",
        "e": "epsilon, the floor of the denominator [g]",
        "a": "absolute error in units of epsilon [1]",
    },
    given=(
        "0 < e",
        "e <= D",
        "0 <= a",
        "A <= a*e",
    ),
    then="A <= a*D",
    twin="A <= 0.99*a*D",
    needed_by=("denominator_rounding_rate",),
)
