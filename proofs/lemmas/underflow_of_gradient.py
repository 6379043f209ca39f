"""What underflow adds for every gradient is a small share of its square, and a constant.

    4 l k E = n^2,  l > 0,  k > 0   =>   n x <= l k x^2 + E

Where c*g underflows, the error is multiplied by g.  The inequality of arithmetic and geometric means charges it to
c*g^2, so that no bound on the gradient enters the slack.

The twin fails: at 2 l k x = n both sides are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="underflow_of_gradient",
    statement="What underflow adds for every gradient is a small share of its square, and a constant.",
    variables={
        "n": "half the smallest subnormal [g]",
        "x": "magnitude of the gradient [g]",
        "l": "share of the square [1]",
        "k": "weight of the squared gradient [1]",
        "E": "the constant [g^2]",
    },
    given=(
        "0 < l",
        "0 < k",
        "4*l*k*E == n*n",
    ),
    then="n*x <= l*k*x*x + E",
    twin="1.01*n*x <= l*k*x*x + E",
    needed_by=("rounding_slack",),
)
