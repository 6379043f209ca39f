"""A quotient whose dividend carries an absolute error carries that error over the least divisor.

    P1 - a <= x <= Q1 + a,  L <= y,  P2 <= y <= Q2,  0 < L,  q y = x,  l Q2 = P1,  h P2 = Q1,  c L = a
        =>   l - c <= q <= h + c

As `product_of_inexact`, for the quotients of the binary32 filter, whose divisors are far from underflow.

The twin fails: at the least divisor and the largest error nothing is to spare.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="quotient_of_inexact",
    statement="A quotient whose dividend carries an absolute error carries that error over the least divisor.",
    variables={
        "x": "computed dividend [1]",
        "y": "computed divisor [1]",
        "q": "their exact quotient [1]",
        "P1": "lower bound of the dividend, but for its error [1]",
        "Q1": "upper bound of the dividend, but for its error [1]",
        "P2": "lower bound of the divisor [1]",
        "Q2": "upper bound of the divisor [1]",
        "a": "absolute error of the dividend [1]",
        "L": "the divisor is at least this [1]",
        "l": "least quotient but for the error [1]",
        "h": "largest quotient but for the error [1]",
        "c": "the error over the least divisor [1]",
    },
    given=(
        "P1 - a <= x <= Q1 + a",
        "P2 <= y <= Q2",
        "0 < L <= y",
        "0 <= l",
        "0 <= h",
        "0 <= c",
        "q*y == x",
        "l*Q2 == P1",
        "h*P2 == Q1",
        "c*L == a",
    ),
    then="l - c <= q <= h + c",
    twin="l - c <= q <= h + 0.99*c",
    needed_by=("binary32_filter",),
)
