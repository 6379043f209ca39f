"""A guard with a small relative error is sound if its tolerance is lowered by twice that.

    |f - T| <= r T,  f <= tau (1 - s),  2 r <= s <= 1/4   =>   T <= tau

T is the guard's exact value and f what its own binary64 evaluation gives. All its terms are
sums, products, quotients and roots of positive numbers, so its error is relative.

The twin fails: the exact value may exceed the lowered tolerance.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="guard_rounding",
    statement="A guard with a small relative error is sound if its tolerance is lowered by twice that.",
    variables={
        "f": "guard as evaluated [lr]",
        "T": "guard in exact arithmetic [lr]",
        "tau": "tolerance [lr]",
        "r": "relative error of the evaluation [1]",
        "s": "margin by which the tolerance is lowered [1]",
    },
    given=(
        "0 <= tau",
        "0 <= T",
        "0 <= r",
        "0 < s <= 1/4",
        "2*r <= s",
        "abs(f - T) <= r*T",
        "f <= tau*(1 - s)",
    ),
    then="T <= tau",
    twin="T <= tau*(1 - s)",
    needed_by=("first_update_theorem",),
)
