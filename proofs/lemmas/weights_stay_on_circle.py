"""The weights of moments and of gradients in a deviation stay on a circle from update to update.

    R = F (1 - r^2),  W = F (1 - p^2)   =>   p^2 R + W = F (1 - (p r)^2)

r is the weight of the moments' errors, p = beta1/sqrt(beta2) what an update multiplies it with, R the square of the
gradients' weight over its limit F: with share_of_sequence_grows, r^2 + R/F = 1 for every update.

The twin fails: it is an equation.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="weights_stay_on_circle",
    statement="The weights of moments and of gradients in a deviation stay on a circle from update to update.",
    variables={
        "r": "weight of the moments [1]",
        "p": "beta1/sqrt(beta2) [1]",
        "R": "square of the gradients' weight [1]",
        "W": "what an update adds to it [1]",
        "F": "its limit [1]",
    },
    given=(
        "R == F*(1 - r*r)",
        "W == F*(1 - p*p)",
    ),
    then="p*p*R + W == F*(1 - p*r*p*r)",
    twin="p*p*R + W == 0.99*F*(1 - p*r*p*r)",
    needed_by=("later_updates",),
)
