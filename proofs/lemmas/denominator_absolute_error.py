"""In the usual range of Adam, underflow adds at most u/200 of epsilon to the denominator.

    u = 2^-24, n = 2^-150, 0 <= G <= 2^18, b >= 2^-5, eps >= 2^-27,  e^2 = (1 + u) n (2 + (1 + u) G),
    A = ((1 + u)^3 e + (1 + u)^2 n)/b + (2 + u) n
      =>   A <= u/200 eps

e is the root of the underflow error of the second moment; A adds up what the root, the division
by b and the addition of epsilon make of it. b >= 2^-5 holds for beta2 = 0.999 at every step;
other settings need another constant than 1/200, which must then be found the same way.

The twin fails: at the corner of the range A is about u/1000 of epsilon.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="denominator_absolute_error",
    statement="In the usual range of Adam, underflow adds at most u/200 of epsilon to the denominator.",
    variables={
        "u": "unit roundoff of binary32 [1]",
        "n": "half the smallest subnormal [g and g^2]",
        "G": "bound on the gradient [g]",
        "b": "root of the bias correction [1]",
        "eps": "epsilon, the floor of the denominator [g]",
        "e": "root of the underflow error of the second moment [g]",
        "A": "absolute error of the denominator [g]",
    },
    given=(
        "u == 2**-24",
        "n == 2**-150",
        "0 <= G <= 2**18",
        "2**-5 <= b",
        "2**-27 <= eps",
        "0 <= e",
        "e*e == (1 + u)*n*(2 + (1 + u)*G)",
        "A*b == (1 + u)**3*e + (1 + u)**2*n + b*(2 + u)*n",
    ),
    then="A <= u/200*eps",
    twin="A <= u/2000*eps",
    needed_by=(
        "absolute_error_below_epsilon",
        "denominator_rounding_rate",
    ),
)
