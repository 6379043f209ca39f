"""The scaled gradient times the root of v is at most half the radicand of the second moment.

    2 A x <= A^2 + x^2

The inequality of arithmetic and geometric means; A^2 + x^2 is the radicand S^2. First half of
the bound P4.

The twin fails: for x = A both sides are equal.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="third_term_epsilon_factor",
    statement="The scaled gradient times the root of v is at most half the radicand of the second moment.",
    variables={
        "x": "scaled gradient sqrt(k)*|g|/b [g]",
        "A": "S without a gradient [g]",
    },
    given=(),
    then="2*A*x <= A*A + x*x",
    twin="2.02*A*x <= A*A + x*x",
    needed_by=("third_term_epsilon",),
)
