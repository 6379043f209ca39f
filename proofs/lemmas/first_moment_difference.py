"""The two first moments differ after any gradient by what they differed before, times 1 - w.

    (mh + w (g - mh)) - (m + w (g - m)) = (1 - w)(mh - m)

The gradient that native and recovered state share drops out: this is what makes a bound for
every gradient possible.

The twin fails: the difference does shrink, by the factor 1 - w.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_difference",
    statement="The two first moments differ after any gradient by what they differed before, times 1 - w.",
    variables={
        "m": "native first moment [g]",
        "mh": "recovered first moment [g]",
        "g": "gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
    },
    given=(),
    then="(mh + w*(g - mh)) - (m + w*(g - m)) == (1 - w)*(mh - m)",
    twin="(mh + w*(g - mh)) - (m + w*(g - m)) == mh - m",
    needed_by=(
        "closed_form_guard",
        "exact_guard",
        "update_difference_splits",
    ),
)
