"""Checks the proof file: every lemma and the theorem of every op model, from certificates, with no solver.

The file is replayed by the kernel, and what comes out is compared with what is claimed: the lemmas of the folder, and
the statements that `reference`'s own source makes of itself.  A theorem may use fewer hypotheses than it is given, none
besides, and must conclude the same atoms.

Claimed: `CheckedClaim.problem` is None only for a claim that the kernel has a theorem of.  Trusted: the modules
imported here (`kernel`, `replay`, `atoms`, `polynomials` for truth; `claims`, `lemma`, `definitions`, `symbolic`,
`statement`, `nearest`, `evaluation`, `cells`, `cell_evaluation`, `cleared`, `cell_deviation`, `cover`, `decay` and
`later` for what is stated), Python and its `fractions` and `json`.  No solver is among them; an import contract keeps
it so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain, product

from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.cell_deviation import cell_deviation, family_deviation
from guarded_moments.proofs.cell_evaluation import evaluated_at_gradient, evaluated_by_ends, evaluated_by_slopes
from guarded_moments.proofs.cells import cell_by_ends, cell_by_slopes
from guarded_moments.proofs.cleared import cleared, row, searched
from guarded_moments.proofs.cover import cut, path_name, paths
from guarded_moments.proofs.decay import Form, Stated, decayed, forms
from guarded_moments.proofs.evaluation import accepted, evaluation
from guarded_moments.proofs.kernel import Theorem
from guarded_moments.proofs.later import every, inexact
from guarded_moments.proofs.lemmas import all_lemmas
from guarded_moments.proofs.nearest import NEAREST, nearest, second_moment
from guarded_moments.proofs.replay import replay
from guarded_moments.proofs.statement import Family, families, statement
from guarded_moments.reference.guard.cut import FIRST_ENDS

#: The proofs, as data.
PROOF_FILE = "certificates/proofs.json"
LEMMA, FIRST_UPDATE, EVALUATION, ACCEPTED = "lemma/", "first_update/", "evaluation/deviation_bound", "accepted/"
CELL, CELL_BY_ENDS, CELL_BY_SLOPES = "cell/", "cell/by_ends", "cell/by_slopes"
NEAREST_NUMBER, SECOND_MOMENT = "nearest/", "second_moment/"
CELL_DEVIATION, ON_CELL = "evaluation/cell_deviation", "on_cell/"
DECAYED = "decayed/"
SEARCHED, TWO_CELLS, FIRST_CELLS, CLEARED = "searched/cell", "searched/two_cells", "searched/first_cells", "cleared/"
#: Cells that are put together: both halves of one, and those that a search begins with.
ROWS, CUT = {TWO_CELLS: 2, FIRST_CELLS: len(FIRST_ENDS)}, "cut/"
INEXACT, EVERY = "inexact_start/", "every_update/bound"
EVALUATED, EVALUATED_BY_ENDS, EVALUATED_BY_SLOPES = (
    f"evaluated_{name}" for name in (CELL, CELL_BY_ENDS, CELL_BY_SLOPES)
)
EVALUATED_AT_GRADIENT = f"{EVALUATED}at_gradient"


@dataclass(frozen=True)
class CheckedClaim:
    """A claim and whether the proof file proves it."""

    name: str
    text: str  #: the claim in a sentence
    problem: str | None = None  #: why it is not proved


@dataclass(frozen=True)
class _Claim:
    name: str
    text: str
    hypotheses: Collection[Atom]
    conclusion: Sequence[Atom]


def proof_text() -> str:
    """The content of the proof file."""
    return resources.files("guarded_moments.proofs").joinpath(PROOF_FILE).read_text(encoding="utf-8")


def check_certificates(text: str | None = None) -> Iterator[CheckedClaim]:
    """Check every claim; the first is ready when the whole file has been replayed.

    Args:
        text: the content of a proof file; the package's own by default.

    Raises:
        ProofFileError: a step of the file is not a proof.
    """
    proved = dict(replay(proof_text() if text is None else text))
    for claim in chain(_claims(), _of_later_updates()):
        yield CheckedClaim(claim.name, claim.text, _problem(claim, proved.pop(claim.name, None)))
    for name in proved:
        yield CheckedClaim(name, "", "the file names a theorem that nothing here states")


def _claims() -> Iterator[_Claim]:
    for lemma in all_lemmas():
        yield _Claim(f"{LEMMA}{lemma.name}", lemma.statement, lemma.hypotheses, lemma.goal)
    for kind in NEAREST:
        one = nearest(kind)
        text = f"Rounding to nearest errs by at most u*|x| + n, in the {kind} range."
        yield _Claim(f"{NEAREST_NUMBER}{kind}", text, one.hypotheses, one.conclusion)
    evaluated = evaluation()
    text = "What the guard compares with the tolerance is at least the bound that it evaluates in binary64."
    yield _Claim(EVALUATION, text, evaluated.hypotheses, [evaluated.conclusion])
    for name, cell in ((CELL_BY_ENDS, cell_by_ends()), (CELL_BY_SLOPES, cell_by_slopes())):
        way = name.removeprefix(CELL).replace("_", " its ")
        text = f"The bound of a cell {way} is, over the reals, at least the deviation at every gradient inside."
        yield _Claim(name, text, cell.hypotheses, cell.conclusion)
    for name, made in ((EVALUATED_BY_ENDS, evaluated_by_ends()), (EVALUATED_BY_SLOPES, evaluated_by_slopes())):
        way = name.removeprefix(EVALUATED).replace("_", " its ")
        text = (
            f"The bound of a cell {way}, as evaluated in binary64, is at least the deviation at every gradient inside."
        )
        yield _Claim(name, text, made.stated.hypotheses, made.stated.conclusion)
    least = evaluated_at_gradient().stated
    text = "What is evaluated from below at a gradient, in binary64, is at most the deviation over the reals there."
    yield _Claim(EVALUATED_AT_GRADIENT, text, least.hypotheses, least.conclusion)
    search = searched()
    text = "On a cell that a search drops, the deviation over the reals and the rounding of both updates fit."
    yield _Claim(SEARCHED, text, search.hypotheses, search.conclusion)
    for name, cells in ROWS.items():
        of_row = row(search, cells)
        text = f"What holds on each of {cells} neighbouring cells that a search drops holds at every gradient of them."
        yield _Claim(name, text, of_row.hypotheses, of_row.conclusion)
    for path in paths():
        split = cut(path)
        text = "A cell is cut between its ends, on one path through the source."
        yield _Claim(f"{CUT}{path_name(path)}", text, split.hypotheses, split.conclusion)
    on_cell = cell_deviation()
    text = "What is evaluated of the deviation on a cell is at least the bound that it evaluates."
    yield _Claim(CELL_DEVIATION, text, on_cell.hypotheses, on_cell.conclusion)
    for family in (*families(), *families(amsgrad=True)):
        stated = statement(family)
        text = f"The guard's bound, over the reals, bounds the deviation of {family.name} ({family.model.name})."
        yield _Claim(f"{FIRST_UPDATE}{family.name}", text, stated.hypotheses, stated.conclusion)
        whole = accepted(stated, evaluated)
        text = f"What the guard compares with the tolerance bounds the deviation of {family.name}."
        yield _Claim(f"{ACCEPTED}{family.name}", text, whole.hypotheses, whole.conclusion)
        of_updates: dict[str, Stated] = {ACCEPTED: whole}
        if not family.options.amsgrad:  # with it no search is asked, and the root is that of no less than `v'`
            kept = second_moment(stated)
            text = f"The rounded second moment of {family.name} is not negative."
            yield _Claim(f"{SECOND_MOMENT}{family.name}", text, kept.hypotheses, kept.conclusion)
            dropped = of_updates[CLEARED] = cleared(stated, search)
            text = (
                f"At a gradient in a cell that the search drops, {family.name} deviates by no more than the tolerance."
            )
            yield _Claim(f"{CLEARED}{family.name}", text, dropped.hypotheses, dropped.conclusion)
            apart = of_updates[ON_CELL] = family_deviation(stated, on_cell)
            text = f"On a cell, {family.name} deviates by no more than what is evaluated from the cell's ends."
            yield _Claim(f"{ON_CELL}{family.name}", text, apart.hypotheses, apart.conclusion)
        for kind, form in product(of_updates, forms(family)):
            at_entering = decayed(stated, form, of_updates[kind])
            text = f"With {form.name} decay, the same of {kind}{family.name} at the gradient that enters the moments."
            name = decayed_name(kind, form, family)
            yield _Claim(name, text, at_entering.hypotheses, at_entering.conclusion)


def decayed_name(kind: str, form: Form, family: Family) -> str:
    """Of the claim about one form of weight decay that follows from one of the claims about a family."""
    return f"{DECAYED}{form.name}/{kind}{family.name}"


def _of_later_updates() -> Iterator[_Claim]:
    each = every()
    text = "The bound on every update is, over the reals, at least the deviation of any."
    yield _Claim(EVERY, text, each.hypotheses, each.conclusion)
    for family in families():
        later = inexact(statement(family))
        text = f"An update of {family.name} from moments that are off carries their errors on, and adds its own."
        yield _Claim(f"{INEXACT}{family.name}", text, later.hypotheses, later.conclusion)


def _problem(claim: _Claim, theorems: Sequence[Theorem] | None) -> str | None:
    if theorems is None:
        return "the file has no proof of it"
    if [theorem.conclusion for theorem in theorems] != [atom.normal() for atom in claim.conclusion]:
        return "what is proved is another conclusion: the claim has changed since"
    given = {atom.normal() for atom in claim.hypotheses}
    for theorem in theorems:
        surplus = theorem.hypotheses - given
        if surplus:
            listed = "; ".join(sorted(map(str, surplus))[:3])
            return f"the proof needs what the claim does not assume: {listed}"
    return None


def count_by_kind(checked: Sequence[CheckedClaim]) -> Mapping[str, int]:
    """How many claims of each kind are proved."""
    kinds = {
        LEMMA: "lemmas",
        NEAREST_NUMBER: "ranges of rounding to nearest",
        SECOND_MOMENT: "signs of the second moment",
        FIRST_UPDATE: "bounds over the reals",
        EVALUATION: "evaluation in binary64",
        CELL_DEVIATION: "evaluation on a cell",
        ACCEPTED: "theorems of both",
        CELL: "bounds of a cell over the reals",
        EVALUATED: "bounds of a cell in binary64",
        SEARCHED: "comparison of a search",
        TWO_CELLS: "join of two cells",
        FIRST_CELLS: "join of its first cells",
        CUT: "paths of a cut",
        CLEARED: "theorems of a dropped cell",
        ON_CELL: "theorems of the deviation on a cell",
        DECAYED: "theorems with weight decay",
        INEXACT: "theorems of an inexact start",
        EVERY: "bound on every update",
    }
    return {
        text: sum(claim.problem is None and claim.name.startswith(kind) for claim in checked)
        for kind, text in kinds.items()
    }
