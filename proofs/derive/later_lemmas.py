"""The derivation of the lemmas about later updates that need more than one certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from guarded_moments.proofs.derive.context import Context, poly
from guarded_moments.proofs.search import Hints

_LINEAR = Hints(ladder=((1, 99, 0),))
_SUBSTITUTED = Hints(ladder=((1, 2, 1), (1, 3, 2), (1, 6, 4)))


def _moment_between_its_ends(c: Context) -> None:
    """`T - p` is at least `|y q|`, so its square is at least that of `x q`."""
    c.by("0 <= T - p", "p + y*q <= T", "p - y*q <= T")
    c.by("0 <= T + p", "-p - y*q <= T", "-p + y*q <= T")
    scaled = c.prover.lemma("x*k*k <= y*k*k", "x <= y", hints=Hints(ladder=((1, 4, 0),), squares=(poly("k"),)))
    c.use(scaled, x="x*x", y="y*y", k="q")
    below = c.prover.lemma("x <= y", "0 <= y", "x*x <= y*y")
    for room, ends in (("T - p", ("p + y*q <= T", "p - y*q <= T")), ("T + p", ("-p - y*q <= T", "-p + y*q <= T"))):
        c.collect(f"(y*q)*(y*q) <= ({room})*({room})", {"one": ends[0], "other": ends[1]}, ["one other"])
        c.by(f"(x*q)*(x*q) <= ({room})*({room})", "x*x*q*q <= y*y*q*q", f"(y*q)*(y*q) <= ({room})*({room})")
        sign = "" if room == "T - p" else "-"
        c.use(below, x=f"{sign}x*q", y=room)
    c.by("abs(p + x*q) <= T", "x*q <= T - p", "-x*q <= T + p")


def _parts_on_a_circle(c: Context) -> None:
    """By the inequality of Cauchy and Schwarz."""
    squares = Hints(ladder=((1, 4, 2),), squares=(poly("r*Y - z*X"),))
    c.by("(r*X + z*Y)*(r*X + z*Y) <= B*B", "r*r + z*z == 1", "B*B == X*X + Y*Y", hints=squares)
    c.use(c.prover.lemma("x <= y", "0 <= y", "x*x <= y*y"), x="r*X + z*Y", y="B")


def _share_of_sequence_grows(c: Context) -> None:
    """The mixed term is at most the mean of `W*b*S` and `q*R*c*g*g`, since its square is at most their product."""
    lemma = c.prover.lemma
    scaled = lemma("x*k*k <= y*k*k", "x <= y", hints=Hints(ladder=((1, 4, 0),), squares=(poly("k"),)))
    both = lemma("p*r*z == s*t*z", "p == s", "r == t", hints=Hints(ladder=((1, 3, 2),)))
    one = lemma("p*z == s*z", "p == s", hints=_SUBSTITUTED)
    c.use(scaled, x="x*x", y="R*S", k="a*w*g")
    c.use(both, p="W*c", s="w*w", r="q*b", t="a*a", z="R*S*g*g")
    facts = ("x*x*(a*w*g)*(a*w*g) <= R*S*(a*w*g)*(a*w*g)", "W*c*(q*b)*(R*S*g*g) == w*w*(a*a)*(R*S*g*g)")
    c.by("(a*w*x*g)*(a*w*x*g) <= (W*b*S)*(q*R*c*g*g)", *facts, hints=_LINEAR)
    c.by("0 <= g*g", hints=Hints(squares=(poly("g"),)))
    signs = {"W": "0 <= W", "b": "0 <= b", "S": "0 <= S", "q": "0 <= q", "R": "0 <= R", "c": "0 <= c", "g": "0 <= g*g"}
    c.collect("0 <= W*b*S", signs, ["W b S"])
    c.collect("0 <= q*R*c*g*g", signs, ["q R c g"])
    signs_of_mean = ("0 <= p", "0 <= r", "y*y <= p*r")
    mean = lemma("2*y <= p + r", *signs_of_mean, hints=Hints(ladder=((2, 2, 0),), squares=(poly("p - r"),)))
    c.use(mean, y="a*w*x*g", p="W*b*S", r="q*R*c*g*g")
    c.use(scaled, x="x*x", y="R*S", k="a")
    c.use(one, p="q*b", s="a*a", z="R*S")
    c.use(one, p="W*c", s="w*w", z="g*g")
    parts = (
        "2*(a*w*x*g) <= W*b*S + q*R*c*g*g",
        "x*x*a*a <= R*S*a*a",
        "q*b*(R*S) == a*a*(R*S)",
        "W*c*(g*g) == w*w*(g*g)",
    )
    c.by("(a*x + w*g)**2 <= (q*R + W)*(b*S + c*g*g)", *parts, hints=_LINEAR)


STEPS: Mapping[str, Callable[[Context], None]] = MappingProxyType(
    {
        "moment_between_its_ends": _moment_between_its_ends,
        "parts_on_a_circle": _parts_on_a_circle,
        "share_of_sequence_grows": _share_of_sequence_grows,
    }
)
