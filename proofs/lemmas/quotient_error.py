"""A quotient inherits the errors of both parts, over the smallest possible denominator.

    |P| <= K,  |p - P| <= z,  |d - D| <= rho D,  D > 0,  0 <= rho < 1
      =>   |p/d - P/D| <= (z + rho K) / ((1 - rho) D)

Carries the relative error rho of the denominator (denominator_rounding_rate) and the error z of
the numerator over to the update. The three quotients enter as variables whose products with
their denominators are known.

The twin fails: without the factor 1 - rho the computed denominator may be smaller than the
bound allows for.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="quotient_error",
    statement="A quotient inherits the errors of both parts, over the smallest possible denominator.",
    variables={
        "P": "exact numerator [lr*g]",
        "p": "computed numerator [lr*g]",
        "D": "exact denominator [g]",
        "d": "computed denominator [g]",
        "q": "p divided by d [lr]",
        "Q": "P divided by D [lr]",
        "K": "bound on the magnitude of P [lr*g]",
        "z": "bound on the error of p [lr*g]",
        "e": "the bound on the error of q [lr]",
        "rho": "relative error of d [1]",
    },
    given=(
        "0 < D",
        "0 <= rho < 1",
        "0 <= z",
        "abs(P) <= K",
        "abs(p - P) <= z",
        "abs(d - D) <= rho*D",
        "q*d == p",
        "Q*D == P",
        "e*(1 - rho)*D == z + rho*K",
    ),
    then="abs(q - Q) <= e",
    twin="abs((q - Q)*D) <= z + rho*K",
    needed_by=(
        "update_rounding_fused",
        "update_rounding_separate",
    ),
)
