"""The larger of a number and a computed one errs as the computed one does.

    w <= P,  V <= P,  |x - V| <= k V + e   =>   |p - P| <= k P + e,    p = max(w, x),  P = max(w, V)

With amsgrad the root is of the largest second moment so far, w, or of the new one.  The comparison is
exact, so that nothing is rounded, and the error of the new one is relative to no more than the larger.

The twin fails: where w is smaller than both, the larger errs as much as x.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="maximum_keeps_error",
    statement="The larger of a number and a computed one errs as the computed one does.",
    variables={
        "w": "largest second moment so far [g^2]",
        "x": "computed second moment [g^2]",
        "V": "exact second moment [g^2]",
        "p": "the larger of w and x [g^2]",
        "P": "the larger of w and V [g^2]",
        "k": "relative error of x [1]",
        "e": "absolute error of x [g^2]",
    },
    given=(
        "0 <= V",
        "0 <= k",
        "0 <= e",
        "abs(x - V) <= k*V + e",
        "w <= p",
        "x <= p",
        "(p - w)*(p - x) == 0",
        "w <= P",
        "V <= P",
        "(P - w)*(P - V) == 0",
    ),
    then="abs(p - P) <= k*P + e",
    twin="abs(p - P) <= k*P + 0.99*e",
    needed_by=("rounding_slack",),
)
