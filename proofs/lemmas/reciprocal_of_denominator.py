"""A denominator with a relative error below one has a reciprocal near the exact one.

    |d - D| <= rho D,  rho < 1,  D > 0   =>   1/d > 0,  1/d <= 1/((1 - rho) D),  |1/d - 1/D| <= rho/d

The reciprocals enter as i, H and j = 1/(1 - rho), by their products.  The slack is multiplied by j once and for all.

The twin fails: where d = (1 - rho) D the bound is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="reciprocal_of_denominator",
    statement="A denominator with a relative error below one has a reciprocal near the exact one.",
    variables={
        "d": "rounded denominator [g]",
        "D": "exact denominator [g]",
        "i": "reciprocal of d [1/g]",
        "H": "reciprocal of D [1/g]",
        "j": "reciprocal of 1 - rho [1]",
        "rho": "relative error of d [1]",
    },
    given=(
        "abs(d - D) <= rho*D",
        "rho < 1",
        "0 < D",
        "0 < H",
        "H*D == 1",
        "i*d == 1",
        "j*(1 - rho) == 1",
    ),
    then="0 < i <= j*H and abs(i - H) <= rho*i",
    twin="0 < i <= 0.99*j*H and abs(i - H) <= rho*i",
    needed_by=("rounding_slack",),
)
