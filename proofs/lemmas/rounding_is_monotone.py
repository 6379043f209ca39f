"""Rounding to nearest keeps the order of numbers, in any format and with any rule for ties.

    x < y,  r nearest to x,  q nearest to y   =>   r <= q

Nothing is used but that r is no further from x than q is, and q no further from y than r. So a
rounded operation is monotone wherever the real one is: running the rounded program at the two
ends of an interval of gradients encloses all it does between. It also gives that a rounded sum
of squares is not negative.

The twin fails: order is kept but not strictly, as two numbers may round to one.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="rounding_is_monotone",
    statement="Rounding to nearest keeps the order of numbers, in any format and with any rule for ties.",
    variables={
        "x": "smaller number [x]",
        "y": "larger number [x]",
        "r": "grid point nearest to x [x]",
        "q": "grid point nearest to y [x]",
    },
    given=(
        "x < y",
        "(x - r)**2 <= (x - q)**2",
        "(y - q)**2 <= (y - r)**2",
    ),
    then="r <= q",
    twin="r < q",
    needed_by=("exact_guard",),
)
