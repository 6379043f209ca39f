"""The second moment errs by at most three roundings and the underflow of its parts.

    |p - W| <= u W + n,  |r - Q| <= (2u + u^2) Q + f,  |v - (p + r)| <= u (p + r)
      =>   |v - (W + Q)| <= ((1 + u)^3 - 1)(W + Q) + (1 + u)(n + f)

W = beta2*v is the decayed moment, Q = k*g*g the gradient's share (gradient_square_rounding
bounds its error). A binary32 sum does not underflow, so its rounding has no absolute term. An
op model that fuses a product makes one of the roundings exact, which the hypotheses allow.

The twin fails: three roundings cost more than 3u, as they compound.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="second_moment_rounding",
    statement="The second moment errs by at most three roundings and the underflow of its parts.",
    variables={
        "W": "decayed second moment beta2*v [g^2]",
        "Q": "share of the gradient k*g*g [g^2]",
        "p": "rounded W [g^2]",
        "r": "rounded Q [g^2]",
        "v": "rounded sum of p and r [g^2]",
        "f": "underflow error of r [g^2]",
        "u": "unit roundoff [1]",
        "n": "half the smallest subnormal [g^2]",
    },
    given=(
        "0 <= u",
        "0 <= n",
        "0 <= f",
        "0 <= W",
        "0 <= Q",
        "0 <= p",
        "0 <= r",
        "abs(p - W) <= u*W + n",
        "abs(r - Q) <= (2*u + u*u)*Q + f",
        "abs(v - (p + r)) <= u*(p + r)",
    ),
    then="abs(v - (W + Q)) <= ((1 + u)**3 - 1)*(W + Q) + (1 + u)*(n + f)",
    twin="abs(v - (W + Q)) <= 3*u*(W + Q) + (1 + u)*(n + f)",
    needed_by=(
        "square_root_rounding_above",
        "square_root_rounding_below",
    ),
)
