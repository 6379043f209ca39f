"""The first moment by product and sum errs by one rounding and two of w*(g - m).

    |d - (g - m)| <= u R,  |p - w d| <= u w (1 + u) R + n,  |r - (m + p)| <= u |m + p|,
    |g - m| <= R,  |m + w (g - m)| <= K
      =>   |r - (m + w (g - m))| <= u K + (1 + u)(w (2u + u^2) R + n)

d is the rounded difference, p the rounded product; neither the difference nor the sum can
underflow. It covers every choice of contraction, since a product that is not rounded satisfies
the hypothesis on p too: so it is the bound to use where the choice is unknown.

The twin fails: the two roundings of w*d compound, so 2u alone is too little.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_rounding_separate",
    statement="The first moment by product and sum errs by one rounding and two of w*(g - m).",
    variables={
        "m": "first moment [g]",
        "g": "gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "d": "rounded g - m [g]",
        "p": "rounded w*d [g]",
        "r": "rounded first moment after the gradient [g]",
        "a": "magnitude of m + p [g]",
        "R": "bound on the magnitude of g - m [g]",
        "K": "bound on the magnitude of the exact moment [g]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [g]",
    },
    given=(
        "0 <= u",
        "0 <= n",
        "0 <= w",
        "abs(g - m) <= R",
        "abs(d - (g - m)) <= u*R",
        "abs(p - w*d) <= u*w*(1 + u)*R + n",
        "abs(m + w*(g - m)) <= K",
        "0 <= a",
        "a*a == (m + p)**2",
        "abs(r - (m + p)) <= u*a",
    ),
    then="abs(r - (m + w*(g - m))) <= u*K + (1 + u)*(w*(2*u + u*u)*R + n)",
    twin="abs(r - (m + w*(g - m))) <= u*K + (1 + u)*(w*2*u*R + n)",
    needed_by=("update_rounding_separate",),
)
