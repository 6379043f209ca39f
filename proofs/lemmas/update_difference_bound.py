"""The two real updates differ by at most the sum of the three terms of the closed-form guard.

    |mh - m| <= a,  0 <= Hh <= H0,  |M| <= (1 - w) n + w r,  0 <= D <= D0,  r D <= P
      =>   |(1 - w)(mh - m) Hh + M (Hh - H)| <= (1 - w) a H0 + (1 - w) n D0 + w P     where  D = |Hh - H|

The left-hand side is the difference of the updates in units of the step
(update_difference_splits). H0 and D0 are the values without a gradient, where
reciprocal_gap_decreases puts the maximum; P is any of the bounds P0 to P4 on the third term,
without w.

The twin fails: without the third term w*P the bound is false.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="update_difference_bound",
    statement="The two real updates differ by at most the sum of the three terms of the closed-form guard.",
    variables={
        "w": "weight of the gradient, 1 - beta1 [1]",
        "dm": "difference of the first moments [g]",
        "M": "native first moment after the gradient [g]",
        "Hh": "reciprocal of the recovered denominator [1/g]",
        "dH": "difference of the reciprocals [1/g]",
        "D": "magnitude of dH [1/g]",
        "a": "bound on the magnitude of dm [g]",
        "n": "bound on the magnitude of m [g]",
        "r": "magnitude of the gradient [g]",
        "H0": "Hh without a gradient [1/g]",
        "D0": "D without a gradient [1/g]",
        "P": "bound on r*D for every gradient [1]",
    },
    given=(
        "0 <= w <= 1",
        "0 <= n",
        "0 <= r",
        "abs(dm) <= a",
        "0 <= Hh <= H0",
        "abs(M) <= (1 - w)*n + w*r",
        "abs(dH) <= D",
        "D <= D0",
        "r*D <= P",
    ),
    then="abs((1 - w)*dm*Hh + M*dH) <= (1 - w)*a*H0 + (1 - w)*n*D0 + w*P",
    twin="abs((1 - w)*dm*Hh + M*dH) <= (1 - w)*a*H0 + (1 - w)*n*D0",
    needed_by=("closed_form_guard",),
)
