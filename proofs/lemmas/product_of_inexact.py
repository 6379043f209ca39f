"""A product of two numbers that carry absolute errors carries each times the largest of the other.

    P1 - a <= x <= Q1 + a,  P2 - b <= y <= Q2 + b,  0 <= P1,  0 <= P2,  Q1, x <= A,  P2, y <= B
        =>   P1 P2 - (a B + b A) <= x y <= Q1 Q2 + (a B + b A)

x and y are computed numbers; P and Q are what their exact values are at least and at most, relative roundings included;
a and b what may be lost to underflow.  The binary32 filter of the guard bounds each of its products so.

The twin fails: the second error is enlarged by the first number, which may be above 1.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="product_of_inexact",
    statement="A product of two numbers that carry absolute errors carries each times the largest of the other.",
    variables={
        "x": "first computed number, not negative [1]",
        "y": "second computed number, not negative [1]",
        "P1": "lower bound of the first, but for its error [1]",
        "Q1": "upper bound of the first, but for its error [1]",
        "P2": "lower bound of the second, but for its error [1]",
        "Q2": "upper bound of the second, but for its error [1]",
        "a": "absolute error of the first [1]",
        "b": "absolute error of the second [1]",
        "A": "the first number and its upper bound are at most this [1]",
        "B": "the second number and its lower bound are at most this [1]",
    },
    given=(
        "P1 - a <= x <= Q1 + a",
        "P2 - b <= y <= Q2 + b",
        "0 <= x <= A",
        "0 <= y <= B",
        "0 <= Q1 <= A",
        "0 <= P2 <= B",
        "0 <= a",
        "0 <= b",
    ),
    then="P1*P2 - (a*B + b*A) <= x*y <= Q1*Q2 + (a*B + b*A)",
    twin="P1*P2 - (a*B + b*A) <= x*y <= Q1*Q2 + (a*B + b)",
    needed_by=("binary32_filter",),
)
