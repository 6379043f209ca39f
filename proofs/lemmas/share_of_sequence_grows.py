"""What gradients add to the first moment is bounded by what they add to the second, update after update.

    x^2 <= R S,  q b = a^2,  W c = w^2   =>   (a x + w g)^2 <= (q R + W) (b S + c g^2)

x is the gradients' share of m and S that of v, a and b the betas.  With R = w^2/c (1 + q + ... + q^(j-2)) before an
update it is the same with one more power after it: so update j is one update with the weight that belongs to R.  (That
it holds after every update because it does before the first is induction, which the kernel does not have.)

The twin fails: gradients that grow by a/b from each update to the next attain it.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="share_of_sequence_grows",
    statement="What gradients add to the first moment is bounded by what they add to the second, update after update.",
    variables={
        "x": "share of the gradients in m [g]",
        "S": "share of the gradients in v [g^2]",
        "R": "square of what x is at most, over S [1]",
        "a": "beta1 [1]",
        "b": "beta2 [1]",
        "w": "weight of the gradient in m [1]",
        "c": "weight of its square in v [1]",
        "g": "gradient [g]",
        "q": "beta1^2/beta2 [1]",
        "W": "w^2/c [1]",
    },
    given=(
        "0 <= S",
        "0 <= R",
        "0 <= b",
        "0 <= c",
        "0 <= q",
        "0 <= W",
        "x*x <= R*S",
        "q*b == a*a",
        "W*c == w*w",
    ),
    then="(a*x + w*g)**2 <= (q*R + W)*(b*S + c*g*g)",
    twin="(a*x + w*g)**2 <= 0.99*(q*R + W)*(b*S + c*g*g)",
    needed_by=("later_updates",),
)
