"""The difference of two shares is a sum of terms of one sign.

    Hh Kh Qh - H K Q = ((Hh - H) Kh + H (Kh - K)) Qh + H K (Qh - Q)

H and K are the reciprocals at both ends of a chord, Q that of the sum of the roots there; with a
trailing h of the recovered state. All three differences have the sign of v - vh, so nothing
cancels on the right, and each factor shrinks along the cell (slope_share_shrinks,
reciprocal_gap_decreases).

The twin fails: it has the recovered reciprocal in the second term.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="slope_difference_splits",
    statement="The difference of two shares is a sum of terms of one sign.",
    variables={
        "H": "native reciprocal at the low end [1/g]",
        "Hh": "recovered reciprocal at the low end [1/g]",
        "K": "native reciprocal at the gradient [1/g]",
        "Kh": "recovered reciprocal at the gradient [1/g]",
        "Q": "reciprocal of the sum of both native roots [1/g]",
        "Qh": "reciprocal of the sum of both recovered roots [1/g]",
    },
    given=(),
    then="Hh*Kh*Qh - H*K*Q == ((Hh - H)*Kh + H*(Kh - K))*Qh + H*K*(Qh - Q)",
    twin="Hh*Kh*Qh - H*K*Q == ((Hh - H)*Kh + Hh*(Kh - K))*Qh + H*K*(Qh - Q)",
    needed_by=("worst_case",),
)
