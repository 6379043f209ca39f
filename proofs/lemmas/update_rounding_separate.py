"""The binary32 update with a moment by product and sum errs by at most the slack F.

    u = 2^-24,  rho = 4.51 u,
    moment    = u*kM + (1 + u)*((2*u + u*u)*kR + n0),
    numerator = al ((1 + u) moment + u kM) + n0,
    quotient  = (numerator + rho al kM) / (1 - rho),
    F         = (1 + u) quotient + u al kM + n
      =>   F <= al u (7.52 kM + 2.01 kR) + 1.01 (1 + al) n0 + n

The errors of first_moment_rounding_separate, of the product with the step al and of
quotient_error, each over the denominator, and of the last rounding of the update. kM bounds
|M|/D, kR bounds w |g - m|/D, n0 is n over the denominator without a gradient. 4.51 + 3
roundings of the first term add up to the constant.

The twin fails: 7.5 roundings of the first term are too few.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="update_rounding_separate",
    statement="The binary32 update with a moment by product and sum errs by at most the slack F.",
    variables={
        "u": "unit roundoff of binary32 [1]",
        "rho": "relative error of the denominator [1]",
        "al": "magnitude of the step, lr over the bias correction [lr]",
        "kM": "bound on |M|/D [1]",
        "kR": "bound on w*|g - m|/D [1]",
        "n0": "n over the denominator without a gradient [1 and lr]",
        "n": "half the smallest subnormal [lr]",
        "moment": "error of the first moment over D [1]",
        "numerator": "error of the numerator over D [lr]",
        "quotient": "error of the quotient [lr]",
        "F": "error of the update [lr]",
    },
    given=(
        "u == 2**-24",
        "rho == 4.51*u",
        "0 <= al",
        "0 <= kM",
        "0 <= kR",
        "0 <= n0",
        "0 <= n",
        "moment == u*kM + (1 + u)*((2*u + u*u)*kR + n0)",
        "numerator == al*((1 + u)*moment + u*kM) + n0",
        "quotient*(1 - rho) == numerator + rho*al*kM",
        "F == (1 + u)*quotient + u*al*kM + n",
    ),
    then="F <= al*u*(7.52*kM + 2.01*kR) + 1.01*(1 + al)*n0 + n",
    twin="F <= al*u*(7.5*kM + 2.01*kR) + 1.01*(1 + al)*n0 + n",
    needed_by=("rounding_slack",),
)
