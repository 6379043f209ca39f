"""A rounded result errs by its own rounding and by what its operands bring, enlarged by it.

    |X| <= K,  |x - X| <= z,  r = x (1 + d) + h,  |d| <= q,  |h| <= n   =>   |r - X| <= q K + (1 + q) z + n

X is the value with no rounding at all, x the exact result of the operation on operands already rounded, r the rounded
result: the standard model of rounding to nearest, with q = u (3 u for a platform's root) and n = 0 where nothing
underflows.  Every rounded operation of the update is an instance.

The twin fails: without the factor 1 + q the rounding of the inherited error z is forgotten.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounded_operation",
    statement="A rounded result errs by its own rounding and by what its operands bring, enlarged by it.",
    variables={
        "X": "value without any rounding [x]",
        "x": "exact result on rounded operands [x]",
        "r": "rounded result [x]",
        "d": "relative error of the rounding [1]",
        "h": "absolute error of the rounding [x]",
        "K": "bound on the magnitude of X [x]",
        "z": "bound on the error that x carries [x]",
        "q": "bound on d, such as the unit roundoff [1]",
        "n": "bound on h, such as half the smallest subnormal [x]",
    },
    given=(
        "abs(X) <= K",
        "abs(x - X) <= z",
        "r == x + x*d + h",
        "abs(d) <= q",
        "abs(h) <= n",
    ),
    then="abs(r - X) <= q*K + (1 + q)*z + n",
    twin="abs(r - X) <= q*K + z + n",
    needed_by=("rounding_slack",),
)
