"""Of a first moment between two ends the deviation is largest at one of the ends.

    |p + y q| <= T,  |p - y q| <= T,  x^2 <= y^2   =>   |p + x q| <= T

p is what the moments of the start make of the deviation, x what the gradients add to both first moments, and q the
difference of the reciprocals: for one second moment the deviation is affine in x.

The twin fails: at the ends it is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="moment_between_its_ends",
    statement="Of a first moment between two ends the deviation is largest at one of the ends.",
    variables={
        "p": "deviation without gradients in m [lr]",
        "q": "difference of the reciprocals, times the step [lr/g]",
        "x": "share of the gradients in m [g]",
        "y": "the largest such share [g]",
        "T": "bound on the deviation at both ends [lr]",
    },
    given=(
        "0 <= y",
        "x*x <= y*y",
        "abs(p + y*q) <= T",
        "abs(p - y*q) <= T",
    ),
    then="abs(p + x*q) <= T",
    twin="abs(p + x*q) <= 0.99*T",
    needed_by=("later_updates",),
)
