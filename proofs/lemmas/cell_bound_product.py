"""A product with a nonnegative second factor is bounded by its values at the ends.

    x0 <= X <= x1,  0 <= z0 <= z <= z1,  lo <= x0 z0, x0 z1,  x1 z0, x1 z1 <= hi
      =>   lo <= X z <= hi

X is a first moment on a cell, of any sign, and z a reciprocal of a denominator or a gap between
two. The minimum and maximum of the ends enter as bounds lo and hi. Both terms of the exact
guard are such products.

The twin fails: at the ends nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="cell_bound_product",
    statement="A product with a nonnegative second factor is bounded by its values at the ends.",
    variables={
        "X": "first factor [x]",
        "x0": "lower end of X [x]",
        "x1": "upper end of X [x]",
        "z": "second factor [1/g]",
        "z0": "lower end of z [1/g]",
        "z1": "upper end of z [1/g]",
        "lo": "bound below the end values [x/g]",
        "hi": "bound above the end values [x/g]",
    },
    given=(
        "x0 <= X <= x1",
        "0 <= z0 <= z <= z1",
        "x1*z0 <= hi",
        "x1*z1 <= hi",
        "lo <= x0*z0",
        "lo <= x0*z1",
    ),
    then="lo <= X*z <= hi",
    twin="lo <= X*z <= 0.99*hi",
    needed_by=("exact_guard",),
)
