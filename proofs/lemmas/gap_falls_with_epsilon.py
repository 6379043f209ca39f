"""The gap between two reciprocals is smaller where epsilon is larger.

    S <= T,  e <= k,  H = 1/(S + e),  I = 1/(T + e),  J = 1/(S + k),  L = 1/(T + k)   =>   J - L <= H - I

In the units in which states do not shrink epsilon grows from update to update: what is shown with the least holds
with every other.

The twin fails: where both are equal so are the gaps.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="gap_falls_with_epsilon",
    statement="The gap between two reciprocals is smaller where epsilon is larger.",
    variables={
        "S": "the smaller root [g]",
        "T": "the larger root [g]",
        "e": "the least epsilon [g]",
        "k": "epsilon of an update [g]",
        "H": "1/(S + e) [1/g]",
        "I": "1/(T + e) [1/g]",
        "J": "1/(S + k) [1/g]",
        "L": "1/(T + k) [1/g]",
    },
    given=(
        "0 <= S",
        "S <= T",
        "0 < e",
        "e <= k",
        "0 < H",
        "0 < I",
        "0 < J",
        "0 < L",
        "H*(S + e) == 1",
        "I*(T + e) == 1",
        "J*(S + k) == 1",
        "L*(T + k) == 1",
    ),
    then="J - L <= H - I",
    twin="J - L <= 0.99*(H - I)",
    needed_by=("later_updates",),
)
