"""The trusted base, in words: what is proved, from what, by which code, and what no proof here speaks about.

Claimed: the lists of claims, preconditions and modules are read from the code that they are about, so that they cannot
be left behind by it.  The words beside them are ours.  `gmc prove --trusted-base` prints it with this machine's
versions; `docs/trusted-base.md` is the same without versions.
"""

from __future__ import annotations

import importlib
import inspect
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from types import MappingProxyType

from guarded_moments.proofs import (
    cell_deviation,
    cell_evaluation,
    cells,
    cleared,
    cover,
    decay,
    evaluation,
    later,
    nearest,
    symbolic,
)
from guarded_moments.proofs.lemmas import all_lemmas
from guarded_moments.proofs.statement import Statement, families, preconditions, statement
from guarded_moments.reference.guard.cut import FIRST_ENDS

#: Why each stated precondition holds wherever the guard accepts.
PRECONDITIONS = MappingProxyType(
    {
        "0 < u <= 1/16": "binary32 has u = 2**-24",
        "0 <= n": "binary32 has n = 2**-150",
        "0 <= w <= 1": "`guard_constants` refuses other weights",
        "1/2 <= w": "torch interpolates from the other end for these weights only (`Hyperparameters.options`)",
        "0 < c <= 1": "`guard_constants` refuses other weights",
        "0 <= beta2": "`Hyperparameters.check`",
        "0 < root": "`guard_constants` refuses a root of zero; it is that of a bias correction in (0, 1]",
        "0 < eps": "`guard_constants` refuses eps of zero",
        "0 < step": "`guard_constants` refuses a learning rate that is not positive; torch's step size is `-lr/bc1`",
        "0 <= native_v": "`in_domain`, else the coordinate escapes",
        "0 <= recovered_v": "`in_domain`, else the coordinate escapes",
        "0 <= v_max": "`in_domain`, else the coordinate escapes; with amsgrad alone, one of both states",
        "rho < 1": "`rounding_slack` returns None otherwise, and `guard_constants` refuses",
        "|g| <= gradient_bound": "the claim is about gradients as they enter the moments; an infinite bound is the "
        "overflow limit",
        "TINY": "TINY is 2**-1000; no root of a binary32 and no eps is near it",
        "slack": "`guard_constants` takes the largest slack of the op models of a tensor, rounded up",
    }
)

#: The same of what is evaluated of a cell.
EVALUATED = MappingProxyType(
    {
        "mu <= 2**-53": "the unit roundoff of binary64, for which `RoundingCount` counts",
        "K <= f, t*t*f <= K": "`guard_constants` rounds every constant up once; `square_root_up` is nearer than that",
        "1 <= inflation*t**k": "`bound_inflation` and `deviation_inflation`, rounded up",
        "upper <= allowance": "what a search compares before it drops a cell",
        "|N(g)| <= upper": "for the slack on a cell: `upper` is a bound of the cell, as evaluated",
    }
)

#: One item a paragraph.
ASSUMED = """
What IEEE 754 says of a result that is rounded to nearest: it is no further from the exact one than its neighbours in
the format and than zero, neighbours are `2*u*s` apart from `s` on and `2*n` below the normal range, and a sum of two
numbers of the format is exact where it is below it. What follows for one rounding is derived (`proofs.nearest`,
`rounding_parts`). This is an axiom about the machine: `gmc ops` and the tests say what was compared with it.

No operation of the update overflows, so that each is rounded as above. This is computed for every claim when its
constants are made: the op model's own source is run on ranges, with everything that the claim admits in place of each
operand; a claim for which a result may be beyond binary32 is refused, and an infinite gradient bound stands for the
largest with which none may be (`reference.guard.overflow`). Trusted are the rules of that arithmetic, one a method; the
kernel's theorems are about real numbers and do not contain it.

No operation of the guard and the searches underflows in binary64, and none overflows but to an infinity that a minimum
drops. This too is computed for every claim when its constants are made: the sources are run once on ranges of
exponents, with every pair of states and every cell of gradients that the claim admits in one of some hundred cases, and
a claim for which a product, a quotient or a root may leave the normal range is refused
(`reference.guard.binary64_range`). Trusted are the rules of that arithmetic, one a method.

The platform's square root is within one unit in the last place of the correctly rounded one: exhausted on a machine by
`gmc certify-platform`, assumed on another.

The op model is the sequence that the kernel computes: see `gmc ops` for how each is known.

A coordinate whose two states are the same value is accepted without the bound: the update is a function.
"""

EXHAUSTED = """
Later updates in small formats: every pair of gradients of a format of five digits and every triple of one of four, for
some pairs of states, by the tests (more of them with `--oracle`); without the slack of rounding some violates.

The whole claim in small formats, from the same sources with the unit roundoff as a parameter: every gradient, every
native and every recovered state of a format of four digits (4.7e9 cases), and of enough second moments of one of five
digits for 1e9 more, by the tests with `--oracle`; 6e7 of them and some for every op model in every run of the tests.
Left out, each term of the guard and each part of its slack lets some pair through, those that stand for underflow
included.

That the loops of the guard and the oracle begin with a row of cells from zero to the largest gradient, leave out a cell
only where its bound says so, and replace every other by two that meet at a cut: of claims with four gradients, every
answer to every question that a loop asks, for every place of the first ends (`tests/reference/guard/test_cover.py`);
some answers, by chance, of other claims.
"""

ASKED = """
The whole claim in a format of eight bits, symbolic in both states and the gradient, as one question to z3 in its theory
of floating-point numbers, from the same sources: no accepted pair violates it, and without the slack one does
(`tests/proofs/test_floating_point.py`, some minutes with `--oracle`; some states in every run).
"""

NOT_DERIVED = """
Later updates: that what is derived of one update, from what held before it, holds after any number of them, is
induction, which the kernel does not have; so is that the weights of an update are on the circle. The supremum over all
sequences with one sum of squares is then that over both ends (`moment_between_its_ends`); for the errors of a run the
same inequality is used with the weights that `reference.horizon.accumulation` sums (`share_of_sequence_grows`, with 1
for beta1). The factor and the drift of `reference.horizon.afterwards` are derived on paper.

That a loop which covers every gradient of a claim with few of them, whatever its bounds answer, does so of a claim with
many: of a cell it asks for a bound, and whether a number of the format lies between its ends.

What the compiled loops decide by a filter in binary32 is what the guard decides in binary64. How often the filter's
bound is rounded follows from rules that are derived for any unit roundoff, what its sums, products and quotients may
lose to underflow from four lemmas; that the rules are put together rightly, where it may overflow, and between which
numbers its terms lie (`reference.arithmetic.rounding_bound`), is argued and tested. An audit uses no filter.
"""

NOT_COVERED = (
    "updates after the claim's horizon: by default the second and all later ones",
    "for a longer horizon, runs that compute gradients of their own, which differ from the second update on",
    "gradients above the bound, infinite gradients and NaN",
    "a native run under one op model and a recovered run under another",
    "flush-to-zero, and any rounding but to nearest",
    "the rounding of the parameter when the update is added to it",
    "with amsgrad, a third moment that is not the same in both states, and the exact guard, which is not used there",
)

_ABSENT = "not installed"
_TRUTH = ("kernel", "polynomials", "atoms", "replay")
_STATEMENTS = (
    *("claims", "lemma", "definitions", "symbolic", "statement", "nearest", "evaluation"),
    *("cells", "cell_evaluation", "cleared", "cell_deviation", "cover", "decay", "later", "check"),
)


def trusted_base(*, versions: bool) -> str:
    """The document, in Markdown.

    Args:
        versions: whether to add those of this machine.
    """
    sections = [_proved(), _hypotheses()]
    sections += [
        _list("Exhausted", paragraphs(EXHAUSTED)),
        _list("Asked of a solver", paragraphs(ASKED)),
        _list("Assumed", paragraphs(ASSUMED)),
    ]
    sections.append(_list("Argued, not derived", paragraphs(NOT_DERIVED)))
    sections += [_list("Not covered", [f"{text}." for text in NOT_COVERED]), _code()]
    if versions:
        sections.append(_list("Versions", (_in_words(*version) for version in installed_versions())))
    head = "# Trusted base\n\nMade by `gmc prove --trusted-base`; do not edit.\n"
    return "\n".join([head, *sections])


def _proved() -> str:
    lines = ["## Proved", "", "Replayed from certificates by `gmc prove --check-certificates`, with no solver."]
    lines += ["Each is a theorem about all real values of its variables.", ""]
    lines += [f"- {lemma.statement} (`{lemma.name}`)" for lemma in all_lemmas()]
    lines.append(
        "- The nearest number of a format errs by at most `u*|x| + n`, in the normal range and below it, and the "
        f"rounded second moment of every op model is not negative, so that its root exists (`{nearest.__name__}`)"
    )
    lines.append(
        "- What the guard compares with the tolerance is at least the bound over the reals: "
        f"{evaluation.rounding_count()} roundings, as many as `RoundingCount` counts (`{evaluation.__name__}`)"
    )
    lines.append(
        "- Over the reals, the bounds of a cell of gradients from its ends (`guard.cells.make_uppers`) and by its "
        "slopes (`guard.slopes.make_slope_uppers`) are at least the deviation of the exact updates at every gradient "
        f"of the cell, of either sign, whichever of `v` and `v_hat` is larger (`{cells.__name__}`)"
    )
    lines.append(
        "- The same of both bounds as they are evaluated in binary64: the allowance for rounding that their source "
        "adds, counted by `RoundingCount`, is at least what they err by, cancellation included "
        f"(`{cell_evaluation.__name__}`)"
    )
    lines.append(
        "- What `guard.cells.make_lowers` evaluates at a gradient, from which the lower end of an enclosure is made, "
        "is at most the magnitude of the deviation over the reals there, of either sign"
    )
    lines.append(
        "- Where what is evaluated of a cell is at most what `guard.allowance` evaluates, the deviation over the reals "
        f"and the slack of both trajectories are together within the tolerance (`{cleared.__name__}`)"
    )
    lines.append(
        "- Where a number bounds the deviation over the reals on a cell, what `guard.cell_slack` evaluates from it and "
        f"from the ends of the cell bounds the deviation of the bit-exact updates on it (`{cell_deviation.__name__}`)"
    )
    lines.append(
        "- The same three theorems of every family with weight decay, as its op models round it: the gradient is the "
        "one that enters the moments, with L2 decay a rounded sum with a multiple of the parameter, and the bound is "
        "on its magnitude; what the update is added to is one number for both states, so that before their rounding "
        f"the parameters differ by as much as the updates (`{decay.__name__}`)"
    )
    lines.append(
        "- Over the reals, `reference.horizon.unbounded.make_every_bound` is at least the deviation of any update, "
        f"given the weights that the reduction has at it (`{later.__name__}`)"
    )
    lines.append(
        "- For every sequence of operations below: an update from moments that are off already carries their errors on "
        f"and adds its own as `reference.horizon.carrying` says (`{later.__name__}`)"
    )
    lines.append(
        "- What holds on each of two neighbouring cells that are dropped holds at every gradient of both, and what "
        f"holds on each of the {len(FIRST_ENDS)} cells that a search begins with at every gradient of them all, "
        "wherever their ends are"
    )
    lines.append(f"- On every path through its source, a cell is cut between its ends (`{cover.__name__}`)")
    lines += [
        "",
        "For each of these sequences of operations, which every op model's update is one of, that the number which",
    ]
    lines += ["the guard compares bounds the distance of the two updates for every gradient, and that on a cell of"]
    lines += ["gradients which a search drops the two updates are within the tolerance of each other, and on any other"]
    lines += ["within what is evaluated for the exact worst case:", ""]
    lines += [f"- `{family.name}`" for family in families()]
    lines += [
        "",
        "With amsgrad, for each of the same sequences and the larger of `v'` and one third moment of both states,",
    ]
    lines += ["that the number which the guard compares bounds the distance of the two updates for every gradient."]
    return "\n".join([*lines, ""])


def _hypotheses() -> str:
    stated = [statement(family) for family in (*families(), *families(amsgrad=True))]
    lines = [
        "## Hypotheses",
        "",
        "What each operation means, as `proofs.symbolic` and `proofs.evaluation` write it:",
        "",
    ]
    lines += [*_indented(symbolic.__doc__), "", *_indented(evaluation.__doc__), ""]
    lines += ["and these preconditions:", "", "| precondition | why it holds where the guard accepts |", "|---|---|"]
    lines += [f"| `{name}` | {PRECONDITIONS[name]} |" for name in _stated(stated)]
    lines += ["", "and for a cell, besides that about TINY at both ends and at the gradient:", ""]
    lines += ["| precondition | why it holds where a cell is bounded |", "|---|---|"]
    lines += [f"| `{text}` | {reason} |" for text, reason in cells.PRECONDITIONS.items()]
    lines += ["", "and for what is evaluated of a cell:", "", "| precondition | why it holds |", "|---|---|"]
    lines += [f"| `{text}` | {reason} |" for text, reason in EVALUATED.items()]
    lines += ["", "and for a later update:", "", "| precondition | why it holds |", "|---|---|"]
    lines += [f"| `{text}` | {reason} |" for text, reason in {**later.INEXACT_START, **later.OF_UPDATE}.items()]
    return "\n".join([*lines, ""])


def _stated(stated: Iterable[Statement]) -> Iterator[str]:
    """Every precondition of any family, each once, then those that are made from the guard's quantities."""
    found: Mapping[str, None] = {}
    for one in stated:
        found = {**found, **dict.fromkeys(preconditions(one.family))}
    yield from (name for name in PRECONDITIONS if name in found)
    yield from ("rho < 1", "|g| <= gradient_bound", "TINY", "slack")


def _indented(text: str | None) -> list[str]:
    """The indented lines of a module's documentation: its mathematics."""
    return [line for line in (text or "").splitlines() if line.startswith("    ")]


def _code() -> str:
    lines = [
        "## Code",
        "",
        "To believe a theorem, read the first; to believe that it is about the guard, also the second.",
        "",
    ]
    for title, names in (("what makes theorems", _TRUTH), ("what states them", _STATEMENTS)):
        counted = ", ".join(f"`{name}` ({_length(name)} lines)" for name in names)
        lines.append(f"- {title}: {counted}.")
    lines += ["- Python, and its `fractions` and `json`.", ""]
    lines.append(
        "No solver is among them: z3 found the certificates, and neither it nor cvc5 is asked when they are checked."
    )
    return "\n".join([*lines, ""])


def _length(name: str) -> int:
    module = importlib.import_module(f"guarded_moments.proofs.{name}")
    return len(inspect.getsource(module).splitlines())


def _list(title: str, texts: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {text}" for text in texts), ""])


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of one of the texts above, a line each."""
    yield from (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def installed_versions() -> Iterator[tuple[str, str]]:
    """What this machine runs: names and versions, or "not installed"."""
    yield "Python", platform.python_version()
    for name in ("guarded-moments", "torch", "z3-solver", "cvc5"):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, _ABSENT


def _in_words(name: str, version: str) -> str:
    return f"{name}: {version}" if version == _ABSENT else f"{name} {version}"
