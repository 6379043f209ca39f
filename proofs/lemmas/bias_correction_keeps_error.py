"""Dividing by the bias correction keeps a relative error and divides an absolute one.

    b > 0,  |s - S| <= kappa S + a   =>   |s/b - S/b| <= kappa S/b + a/b

The denominator of the update is sqrt(v)/b + eps with b = sqrt(1 - beta2^t). The three quotients
enter as variables whose products with b are known. The rounding of the division itself is
rounded_operation.

The twin fails: the absolute error is divided by b and not diminished further.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="bias_correction_keeps_error",
    statement="Dividing by the bias correction keeps a relative error and divides an absolute one.",
    variables={
        "s": "computed root [g]",
        "S": "exact root [g]",
        "a": "absolute error of s [g]",
        "b": "root of the bias correction [1]",
        "p": "s divided by b [g]",
        "P": "S divided by b [g]",
        "c": "a divided by b [g]",
        "kappa": "relative error of s [1]",
    },
    given=(
        "0 < b",
        "abs(s - S) <= kappa*S + a",
        "p*b == s",
        "P*b == S",
        "c*b == a",
    ),
    then="abs(p - P) <= kappa*P + c",
    twin="abs(p - P) <= kappa*P + 0.99*c",
    needed_by=("rounding_slack",),
)
