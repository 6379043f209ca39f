"""The two second moments differ after any gradient by what they differed before, times beta2.

    (beta2 vh + k g^2) - (beta2 v + k g^2) = beta2 (vh - v)

The gradient that native and recovered state share drops out, so the pair of radicands keeps its
distance d for every gradient: the hypothesis of reciprocal_gap_decreases.

The twin fails: the difference does shrink, by the factor beta2.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="second_moment_difference",
    statement="The two second moments differ after any gradient by what they differed before, times beta2.",
    variables={
        "v": "native second moment [g^2]",
        "vh": "recovered second moment [g^2]",
        "g": "gradient [g]",
        "beta2": "decay of the second moment [1]",
        "k": "weight of the squared gradient, 1 - beta2 [1]",
    },
    given=(),
    then="(beta2*vh + k*g*g) - (beta2*v + k*g*g) == beta2*(vh - v)",
    twin="(beta2*vh + k*g*g) - (beta2*v + k*g*g) == vh - v",
    needed_by=(
        "closed_form_guard",
        "exact_guard",
        "reciprocal_gap_decreases",
    ),
)
