"""The second moment grows with the magnitude of the gradient.

    k >= 0, 0 <= g0 <= g   =>   beta2 v + k g0^2 <= beta2 v + k g^2

So every function that is monotone in the radicand, such as the reciprocal of the denominator
and the gap between two, is monotone in |g| on a cell of gradients of one sign.

The twin fails: at the end of the cell the two are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="second_moment_on_cell",
    statement="The second moment grows with the magnitude of the gradient.",
    variables={
        "v": "second moment [g^2]",
        "beta2": "decay of the second moment [1]",
        "k": "weight of the squared gradient, 1 - beta2 [1]",
        "g": "magnitude of the gradient [g]",
        "g0": "smaller magnitude [g]",
    },
    given=(
        "0 <= k",
        "0 <= g0 <= g",
    ),
    then="beta2*v + k*g0*g0 <= beta2*v + k*g*g",
    twin="beta2*v + 1.01*k*g0*g0 <= beta2*v + k*g*g",
    needed_by=("exact_guard",),
)
