"""Adding the same positive epsilon to both sides does not raise a relative error.

    eps > 0, kappa >= 0,  |p - P| <= kappa P + a   =>   |(p + eps) - (P + eps)| <= kappa (P + eps) + a

Carries the relative error of the root over to the denominator. The rounding of the addition is
rounded_operation.

The twin fails: the denominator is P + eps; with P - eps in its place the bound is too small.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="epsilon_keeps_error",
    statement="Adding the same positive epsilon to both sides does not raise a relative error.",
    variables={
        "p": "computed root over bias correction [g]",
        "P": "exact root over bias correction [g]",
        "e": "epsilon, the floor of the denominator [g]",
        "a": "absolute error of p [g]",
        "kappa": "relative error of p [1]",
    },
    given=(
        "0 < e",
        "0 <= kappa",
        "abs(p - P) <= kappa*P + a",
    ),
    then="abs((p + e) - (P + e)) <= kappa*(P + e) + a",
    twin="abs((p + e) - (P + e)) <= kappa*(P - e) + a",
    needed_by=("denominator_rounding_rate",),
)
