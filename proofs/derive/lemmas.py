"""The derivation of every lemma: one certificate where there is one, else steps that have one each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

from guarded_moments.proofs.derive import inexact_operations, later_lemmas
from guarded_moments.proofs.derive.context import Context, Prover, atoms, poly
from guarded_moments.proofs.lemma import Lemma
from guarded_moments.proofs.lemmas import all_lemmas
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints

_LINEAR = Hints(ladder=((1, 99, 0),))
#: `(S + e)*(T + e)` in products.
_BOTH = ("S T", "S e", "e T", "e e")


class Lemmas:
    """The lemmas of the folder, each derived when it is first used, under its name."""

    def __init__(self, prover: Prover) -> None:
        """Derive with one prover."""
        self.prover = prover
        self._found: dict[str, list[Proved]] = {}

    @cached_property
    def all(self) -> Mapping[str, Lemma]:
        """Every lemma by its name."""
        return {lemma.name: lemma for lemma in all_lemmas()}

    def __call__(self, name: str) -> list[Proved]:
        """The theorems of a lemma, one for each atom of its goal."""
        if name not in self._found:
            lemma = self.all[name]
            if name in _STEPS:
                context = Context(self.prover, list(lemma.hypotheses))
                _STEPS[name](context, self)
                self._found[name] = [context.known_fact(atom.normal()) for atom in lemma.goal]
            else:
                facts, hints = atoms(list(lemma.hypotheses)), _HINTS.get(name)
                self._found[name] = [self.prover.prove(atom.normal(), facts, hints) for atom in lemma.goal]
            self.prover.recording.name(f"lemma/{name}", self._found[name])
        return self._found[name]


_HINTS = MappingProxyType(
    {
        "underflow_of_gradient": Hints(ladder=((3, 6, 1),), squares=(poly("2*l*k*x - n"),)),
        "third_term_stationary_factor": Hints(ladder=((1, 3, 0),), squares=(poly("W - 2*y"),)),
        "third_term_epsilon_factor": Hints(squares=(poly("A - x"),)),
    }
)


def _rounded_operation(c: Context, _: Lemmas) -> None:
    c.by("abs(x) <= K + z", "abs(X) <= K", "abs(x - X) <= z")
    product = c.prover.lemma("abs(x*y) <= a*b", "abs(x) <= a", "abs(y) <= b")
    c.use(product, x="x", y="d", a="K + z", b="q")
    facts = ("abs(x*d) <= (K + z)*q", "abs(x - X) <= z", "r == x + x*d + h", "abs(h) <= n")
    c.by("abs(r - X) <= q*K + (1 + q)*z + n", *facts, hints=Hints(ladder=((1, 2, 0),)))


def _square_root_error(c: Context, _: Lemmas) -> None:
    squares = Hints(ladder=((2, 4, 0), (3, 4, 0), (4, 4, 0)))
    c.by("(1 + k/2 + k*k/2)**2 >= 1 + k", "0 <= k", "k <= 1", hints=squares)
    c.by("(1 - k/2 - k*k/2)**2 <= 1 - k", "0 <= k", "k <= 1", hints=squares)
    c.by("0 <= 1 - k/2 - k*k/2", "0 <= k", "k <= 1", hints=squares)
    c.by("0 <= 1 + k/2 + k*k/2", "0 <= k")
    near = ("abs(y - S*S) <= k*S*S + E", "E <= e*e", "s*s == y")
    c.by("s*s <= (1 + k)*S*S + e*e", *near, hints=_LINEAR)
    c.by("s*s >= (1 - k)*S*S - e*e", *near, hints=_LINEAR)
    signs = ("0 <= c", "0 <= S", "0 <= s", "0 <= e")
    square = Hints(ladder=((2, 4, 1), (3, 4, 1)), squares=(poly("S"),))
    above = c.prover.lemma("s <= c*S + e", *signs, "c*c >= x", "s*s <= x*S*S + e*e", hints=square)
    below = c.prover.lemma("s >= c*S - e", *signs, "c*c <= x", "s*s >= x*S*S - e*e", hints=square)
    c.use(above, c="1 + k/2 + k*k/2", x="1 + k")
    c.use(below, c="1 - k/2 - k*k/2", x="1 - k")
    facts = ("s <= (1 + k/2 + k*k/2)*S + e", "s >= (1 - k/2 - k*k/2)*S - e")
    c.by("abs(s - S) <= (k/2 + k*k/2)*S + e", *facts, hints=_LINEAR)


def _reciprocal_of_denominator(c: Context, _: Lemmas) -> None:
    c.by("0 < d", "abs(d - D) <= rho*D", "rho < 1", "0 < D")
    c.by("0 < i", "0 < d", "i*d == 1")
    c.by("0 < j", "rho < 1", "j*(1 - rho) == 1")
    c.by("(1 - rho)*D <= d", "abs(d - D) <= rho*D")
    positive = c.prover.lemma("0 < x*y", "0 < x", "0 < y")
    c.use(positive, x="1 - rho", y="D")
    c.use(positive, x="j", y="H")
    c.by("(j*H)*((1 - rho)*D) == 1", "j*(1 - rho) == 1", "H*D == 1", hints=Hints(ladder=((1, 5, 4),)))
    ordered = ("0 < a", "a <= b", "0 < i", "0 < j", "i*a == 1", "j*b == 1")
    reciprocals = c.prover.lemma("j <= i", *ordered, hints=Hints(ladder=((3, 4, 2), (3, 5, 3))))
    c.use(reciprocals, a="(1 - rho)*D", b="d", i="j*H", j="i")
    facts = ("0 < i", "0 < H", "abs(d - D) <= rho*D", "H*D == 1", "i*d == 1")
    c.by("abs(i - H) <= rho*i", *facts, hints=Hints(ladder=((3, 4, 2), (3, 5, 3), (3, 6, 3))))


def _cell_bound_product(c: Context, _: Lemmas) -> None:
    """By the sign of X, since the bounds at the ends are those of a sign."""
    for goal, facts in (
        ("X*z <= hi", ("X <= x1", "x1*z0 <= hi", "x1*z1 <= hi")),
        ("lo <= X*z", ("x0 <= X", "lo <= x0*z0", "lo <= x0*z1")),
    ):
        hints = Hints(ladder=((2, 3, 0), (3, 4, 0)))
        signs = ("0 <= z0", "z0 <= z", "z <= z1")
        one, other = (c.prover.lemma(goal, sign, *facts, *signs, hints=hints)[0] for sign in ("0 <= X", "X <= 0"))
        c.add(c.discharged(c.prover.recording.cases(one, other, poly("X"))))


def _reciprocal_gap_decreases(c: Context, lemmas: Lemmas) -> None:
    c.use(lemmas("square_root_gap_decreases"))
    c.by("0 <= s2", "0 <= s1", "s1 <= s2")
    c.by("0 <= t1", "0 <= s1", "s1 <= t1")
    roots = c.prover.lemma("x <= y", "0 <= x", "0 <= y", "x*x <= y*y")
    squares = {"s1": "0 <= s1", "s": "s1 <= s2", "t": "s1 <= t1", "is": "t1*t1 - s1*s1 == t2*t2 - s2*s2"}
    c.collect("s2*s2 <= t2*t2", squares, ["s1 t", "t t"])
    c.collect("t1*t1 <= t2*t2", squares, ["s1 s", "s s"])
    c.use(roots, x="s2", y="t2")
    c.use(roots, x="t1", y="t2")
    facts = {"slower": "t1 - s1 >= t2 - s2", "s2": "0 <= s2", "t2": "0 <= t2", "e": "0 < e", "s": "s1 <= s2"}
    facts |= {"gap": "s2 <= t2", "t": "t1 <= t2", "s1": "0 <= s1"}
    products = [
        "slower s2 t2",
        "slower s2 e",
        "slower e t2",
        "slower e e",
        "gap s t2",
        "gap s e",
        "gap t s1",
        "gap t e",
    ]
    c.collect("(t1 - s1)*(s2 + e)*(t2 + e) >= (t2 - s2)*(s1 + e)*(t1 + e)", facts, products)


def _roots_are_ordered(c: Context, _: Lemmas) -> None:
    roots = c.prover.lemma("x <= y", "0 <= x", "0 <= y", "x*x <= y*y")
    given = {"S": "S*S == A*A + x*x", "T": "T*T == S*S + d", "B": "B*B == A*A + d", "d": "0 <= d"}
    for small, large in ("AS", "ST", "AB", "BT"):
        facts = [given[name] for name in "STBd"]
        c.by(f"{small}*{small} <= {large}*{large}", *facts, hints=Hints(ladder=((1, 2, 0),), squares=(poly("x"),)))
        c.use(roots, x=small, y=large)


def _third_term_at_bound(c: Context, lemmas: Lemmas) -> None:
    c.by("T*T - S*S == B*B - A*A", "T*T - S*S == B*B - A*A")
    c.by("0 <= A", "0 <= A")
    for name, below in (("S", "A"), ("B", "A"), ("T", "S")):
        c.by(f"0 <= {name}", f"0 <= {below}", f"{below} <= {name}")
    c.use(lemmas("reciprocal_gap_decreases"), s1="A", s2="S", t1="B", t2="T", e="e")
    facts = {"near": "(B - A)*(S + e)*(T + e) >= (T - S)*(A + e)*(B + e)", "x": "0 <= x", "most": "x <= X"}
    facts |= {"AB": "A <= B", "S": "0 <= S", "T": "0 <= T", "e": "0 < e"}
    products = ["near x", *(f"most AB {both}" for both in _BOTH)]
    c.collect("x*(T - S)*(A + e)*(B + e) <= X*(B - A)*(S + e)*(T + e)", facts, products)


def _third_term_stationary(c: Context, _: Lemmas) -> None:
    roots = c.prover.lemma("x <= y", "0 <= y", "x*x <= y*y")
    product = c.prover.lemma("0 <= x*y", "0 <= x", "0 <= y")
    c.use(product, x="S", y="S")
    c.use(product, x="S", y="2*S*S")
    c.by("p*p <= (2*S**3)*(2*S**3)", "p*p <= 4*S**6", hints=Hints(ladder=((1, 99, 0),)))
    c.use(roots, x="p", y="2*S**3")
    facts = {"S": "0 <= S", "ST": "S <= T", "e": "0 < e", "cube": "p <= 2*S**3", "T": "0 <= T", "d": "T*T == S*S + d"}
    c.by("0 <= T", "0 <= S", "S <= T")
    products = [f"ST ST {both}" for both in _BOTH] + [f"ST S {rest}" for rest in ("S ST", "S e", "e T", "e e")]
    c.collect("p*(T - S) <= d*(S + e)*(T + e)", facts, [*products, "ST cube"])


def _third_term_epsilon(c: Context, _: Lemmas) -> None:
    c.by("0 <= T", "0 <= S", "S <= T")
    c.by("8*e*S*S <= 2*S*(S + e)*(S + e)", "0 <= S", hints=Hints(ladder=((1, 3, 0),), squares=(poly("S - e"),)))
    facts = {"least": "8*e*S*S <= 2*S*(S + e)*(S + e)", "mean": "2*A*x <= S*S", "S": "0 <= S", "T": "0 <= T"}
    facts |= {"ST": "S <= T", "e": "0 < e", "d": "T*T == S*S + d"}
    products = ["ST least", "ST e mean", *(f"ST ST {both}" for both in _BOTH), "ST ST S S", "ST ST S e"]
    c.collect("16*e*A*x*(T - S) <= d*(S + e)*(T + e)", facts, products)


def _rounding_parts(c: Context, _: Lemmas) -> None:
    c.by("r == x + x*((r - x)*u*i) + (r - x)*n*i", "i*(u*x + n) == 1", hints=Hints(ladder=((1, 99, 1),)))
    c.collect("0 <= u*x + n", {"u": "0 <= u", "x": "0 <= x", "n": "0 <= n"}, ["u x", "n"])
    c.use(c.prover.lemma("0 < q", "0 <= d", "q*d == 1"), q="i", d="u*x + n")
    within = c.prover.lemma("y*q <= 1", "y <= d", "0 < q", "q*d == 1")
    scaled = c.prover.lemma("k*y <= k", "y <= 1", "0 <= k")
    for error in ("r - x", "x - r"):
        c.use(within, y=error, q="i", d="u*x + n")
        for part in ("u", "n"):
            c.use(scaled, k=part, y=f"({error})*i")


def _of_context(steps: Callable[[Context], None]) -> Callable[[Context, Lemmas], None]:
    """Steps that need no other lemma."""
    return lambda c, _: steps(c)


_STEPS: Mapping[str, Callable[[Context, Lemmas], None]] = MappingProxyType(
    {
        "rounded_operation": _rounded_operation,
        "rounding_parts": _rounding_parts,
        "square_root_error": _square_root_error,
        "reciprocal_of_denominator": _reciprocal_of_denominator,
        "cell_bound_product": _cell_bound_product,
        "reciprocal_gap_decreases": _reciprocal_gap_decreases,
        "roots_are_ordered": _roots_are_ordered,
        "third_term_at_bound": _third_term_at_bound,
        "third_term_stationary": _third_term_stationary,
        "third_term_epsilon": _third_term_epsilon,
        **{
            name: _of_context(steps) for name, steps in (*later_lemmas.STEPS.items(), *inexact_operations.STEPS.items())
        },
    }
)
