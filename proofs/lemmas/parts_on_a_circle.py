"""Two parts of a sum with weights on a circle are at most the root of the sum of their squares.

    r^2 + z^2 = 1,  B^2 = X^2 + Y^2   =>   r X + z Y <= B

X is what the errors of the moments can make of a deviation, Y what gradients can: so one bound is for every update.

The twin fails: where the weights are proportional to the parts it is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="parts_on_a_circle",
    statement="Two parts of a sum with weights on a circle are at most the root of the sum of their squares.",
    variables={
        "r": "weight of the moments [1]",
        "z": "weight of the gradients [1]",
        "X": "part of the moments [lr]",
        "Y": "part of the gradients [lr]",
        "B": "bound [lr]",
    },
    given=(
        "r*r + z*z == 1",
        "0 <= B",
        "B*B == X*X + Y*Y",
    ),
    then="r*X + z*Y <= B",
    twin="r*X + z*Y <= 0.99*B",
    needed_by=("later_updates",),
)
