"""The fused first moment errs by one rounding and that of the difference g - m.

    |d - (g - m)| <= u R,  |r - (m + w d)| <= u |m + w d| + n,  |g - m| <= R,  |m + w (g - m)| <= K
      =>   |r - (m + w (g - m))| <= u K + (1 + u) u w R + n

d is the rounded difference, whose rounding cannot underflow. This is fma(w, d, m), torch's lerp
in builds that contract.

The twin fails: without the factor 1 + u the rounding of the inherited error is forgotten.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="first_moment_rounding_fused",
    statement="The fused first moment errs by one rounding and that of the difference g - m.",
    variables={
        "m": "first moment [g]",
        "g": "gradient [g]",
        "w": "weight of the gradient, 1 - beta1 [1]",
        "d": "rounded g - m [g]",
        "r": "rounded first moment after the gradient [g]",
        "a": "magnitude of m + w*d [g]",
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
        "abs(m + w*(g - m)) <= K",
        "0 <= a",
        "a*a == (m + w*d)**2",
        "abs(r - (m + w*d)) <= u*a + n",
    ),
    then="abs(r - (m + w*(g - m))) <= u*K + (1 + u)*u*w*R + n",
    twin="abs(r - (m + w*(g - m))) <= u*K + u*w*R + n",
    needed_by=("update_rounding_fused",),
)
