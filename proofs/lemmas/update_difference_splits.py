"""The difference of the two updates is that of the first moments plus that of the denominators.

    Mh Hh - M H = (1 - w)(mh - m) Hh + M (Hh - H)   with  M = m + w (g - m),  Mh = mh + w (g - mh)

H and Hh are the reciprocals of the two denominators. Only in the first term is the difference
of the first moments left, and the gradient is only in M, Hh and H. Both guards start from this
line.

The twin fails: the second term has the native first moment, not the recovered one.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="update_difference_splits",
    statement="The difference of the two updates is that of the first moments plus that of the denominators.",
    variables={
        "m": "native first moment [g]",
        "mh": "recovered first moment [g]",
        "g": "gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "H": "reciprocal of the native denominator [1/g]",
        "Hh": "reciprocal of the recovered denominator [1/g]",
    },
    given=(),
    then="(mh + w*(g - mh))*Hh - (m + w*(g - m))*H == (1 - w)*(mh - m)*Hh + (m + w*(g - m))*(Hh - H)",
    twin="(mh + w*(g - mh))*Hh - (m + w*(g - m))*H == (1 - w)*(mh - m)*Hh + (mh + w*(g - mh))*(Hh - H)",
    needed_by=("exact_guard",),
)
