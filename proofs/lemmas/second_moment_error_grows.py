"""The relative error of a second moment grows by that of each update.

    |v - V| <= r V + E,  |y - (b v + s)| <= k (b v + s) + f
      =>   |y - (b V + s)| <= ((1+k)(1+r) - 1) (b V + s) + (1+k) b E + f

v is the binary32 moment before an update and V the formula's, y the binary32 moment after it; s is what the gradient
adds.  New gradients dilute the error, which is not used.

The twin fails: where every rounding errs upwards as far as it may, it is attained.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="second_moment_error_grows",
    statement="The relative error of a second moment grows by that of each update.",
    variables={
        "v": "second moment before the update [g^2]",
        "V": "the same of the formula [g^2]",
        "y": "second moment after the update [g^2]",
        "b": "beta2 [1]",
        "s": "square of the gradient, weighted [g^2]",
        "r": "relative error before [1]",
        "E": "absolute error before [g^2]",
        "k": "relative error of the update alone [1]",
        "f": "absolute error of the update alone [g^2]",
    },
    given=(
        "0 <= V",
        "0 <= s",
        "0 <= b",
        "0 <= r",
        "0 <= k",
        "0 <= E",
        "abs(v - V) <= r*V + E",
        "abs(y - (b*v + s)) <= k*(b*v + s) + f",
    ),
    then="abs(y - (b*V + s)) <= ((1 + k)*(1 + r) - 1)*(b*V + s) + (1 + k)*b*E + f",
    twin="abs(y - (b*V + s)) <= 0.99*((1 + k)*(1 + r) - 1)*(b*V + s) + (1 + k)*b*E + f",
    needed_by=("later_updates",),
)
