"""The gradient's share k*g*g of the second moment, formed as (k*g)*g, errs by two roundings.

    |p - k g| <= u k g + n,  |r - p g| <= u p g + n   =>   |r - k g^2| <= (2u + u^2) k g^2 + (1 + u) n g + n

Without loss of generality g >= 0, as g enters squared. The underflow term of the first product
is multiplied by the gradient, so it is the one place of the rounding analysis where a bound on
the gradient enters.

The twin fails: the two roundings compound, so 2u alone is too little.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gradient_square_rounding",
    statement="The gradient's share k*g*g of the second moment, formed as (k*g)*g, errs by two roundings.",
    variables={
        "k": "weight of the squared gradient, 1 - beta2 [1]",
        "g": "magnitude of the gradient [g]",
        "p": "rounded k*g [g]",
        "r": "rounded p*g [g^2]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [g and g^2]",
    },
    given=(
        "0 <= u",
        "0 <= n",
        "0 <= k",
        "0 <= g",
        "0 <= p",
        "abs(p - k*g) <= u*k*g + n",
        "abs(r - p*g) <= u*p*g + n",
    ),
    then="abs(r - k*g*g) <= (2*u + u*u)*k*g*g + (1 + u)*n*g + n",
    twin="abs(r - k*g*g) <= 2*u*k*g*g + (1 + u)*n*g + n",
    needed_by=("second_moment_rounding",),
)
