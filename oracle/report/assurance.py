"""The assurance case: from the claim to its evidence, each step under one of five words.

*Proved*: a theorem that the proof kernel replayed.  *Exhausted*: every case was computed.  *Tested*: some cases, with
their number and seed.  *Assumed*: taken for granted, or argued in words.  *Unknown*: nobody looked, or what was looked
at was not decided.  A search that ran out of its budget is unknown, and so is a check that was not made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from guarded_moments.oracle.audit import Audit
from guarded_moments.oracle.platform import Certificate
from guarded_moments.oracle.report.against_torch import SEED
from guarded_moments.oracle.report.gathering import Gatherer
from guarded_moments.reference.claim import Horizon

if TYPE_CHECKING:
    from guarded_moments.oracle.report.facts import Evidence


class Word(Enum):
    """How a step is known, or that it fails."""

    PROVED = "proved"
    EXHAUSTED = "exhausted"
    TESTED = "tested"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"
    REFUTED = "refuted"  #: what was found contradicts it


def assurance(
    result: Audit, gatherer: Gatherer, evidence: Evidence, certificate: Certificate | None
) -> list[dict[str, str]]:
    """The steps, each with what it rests on; `level` is its depth below the claim."""
    return [
        {"step": step, "level": str(level), "word": word.value, "evidence": text}
        for level, step, word, text in _steps(result, gatherer, evidence, certificate)
    ]


_Step = tuple[int, str, Word, str]


def _steps(result: Audit, gatherer: Gatherer, evidence: Evidence, certificate: Certificate | None) -> Iterator[_Step]:
    yield (
        0,
        "The file is this native checkpoint's own",
        Word.EXHAUSTED,
        "every value beside the guarded moments was compared bit for bit, and a digest of each tensor's moments",
    )
    # The audit counts a wrong escape as a violation; without violations there is none.
    violations, undecided = result.total("violations"), result.total("undecided")
    escaped = Word.EXHAUSTED if violations == 0 else Word.UNKNOWN
    yield 0, "What is stored exactly is the native pair", escaped, f"{result.total('escapes'):,} pairs compared"
    decided = Word.REFUTED if violations else Word.UNKNOWN if undecided else Word.EXHAUSTED
    decided = Word.REFUTED if violations else Word.UNKNOWN if undecided else Word.EXHAUSTED
    yield (
        0,
        "Every other coordinate was decided for all gradients, and none violates",
        decided,
        f"{result.total('safe'):,} safe, {violations:,} violations, {undecided:,} undecided, none sampled",
    )
    yield 1, "The bounds by which cells of gradients are dropped, lemma by lemma", _proved(evidence), _proofs(evidence)
    yield (
        1,
        "In cells that no bound drops, the op model itself keeps the tolerance",
        decided,
        "at each of their gradients, or over a cell by the monotonicity of rounding",
    )
    for text in evidence.argued:
        yield 1, text, Word.ASSUMED, "argued in the modules, not derived by the kernel"
    yield (
        0,
        "The guard accepts nothing that violates the claim, on any checkpoint",
        _proved(evidence),
        f"{len(evidence.theorems):,} theorems replayed, for all reals under the hypotheses listed as assumed",
    )
    for text in evidence.exhausted:
        yield 1, text, Word.ASSUMED, "exhausted by the tests of this package with --oracle; not run for this report"
    yield from _machine(gatherer, certificate)
    yield 0, "What holds after the first update", *_afterwards(result, decided)
    yield (
        0,
        "What holds in runs that compute gradients of their own, from the second update on",
        Word.UNKNOWN,
        "not claimed; gmc trajectory measures it for a training",
    )


def _afterwards(result: Audit, decided: Word) -> tuple[Word, str]:
    """What is known of later updates under a sequence of gradients that both runs share."""
    if result.horizon == str(Horizon.FIRST):
        return Word.UNKNOWN, f"not claimed; {'; '.join(result.afterwards.sentences())}"
    if result.horizon == str(Horizon.ALL):
        return decided, "every coordinate's later updates were bounded at once, in exact arithmetic, for every sequence"
    text = f"every coordinate was decided for updates 2 to {result.horizon} in binary32, for every sequence"
    return decided, f"{text}; that rounding errors carry over from each update to the next is induction, on paper"


def _machine(gatherer: Gatherer, certificate: Certificate | None) -> Iterator[_Step]:
    torch = gatherer.against_torch
    word = Word.REFUTED if torch.differing else Word.TESTED if torch.compared else Word.UNKNOWN
    text = (
        f"n = {torch.compared:,} states of this checkpoint, native and recovered, one step of torch.optim.AdamW each "
        f"with drawn gradients, seed {SEED}: {torch.differing:,} differ in any bit"
    )
    left_out = f"; {torch.left_out:,} coordinates were not compared" if torch.left_out else ""
    nothing = "this machine does not run the op model of the claim, or its options are not compared here"
    yield (
        0,
        "This machine's torch computes the op model of the claim",
        word,
        (text if torch.compared else nothing) + left_out,
    )
    arithmetic = None if certificate is None else certificate.arithmetic
    if arithmetic is None:
        yield (
            0,
            "Binary32 operations round to nearest",
            Word.ASSUMED,
            "not compared with MPFR on this machine; gmc certify-platform does",
        )
    else:
        word = Word.REFUTED if arithmetic.differing else Word.TESTED
        text = f"n = {arithmetic.total:,}, seed {arithmetic.seed}: {arithmetic.sentence()}"
        yield 0, "Binary32 operations round to nearest", word, text
    yield 0, "torch.sqrt is within one unit of the correctly rounded root, and monotone", *_root(certificate)


def _root(certificate: Certificate | None) -> tuple[Word, str]:
    root = None if certificate is None else certificate.root
    if root is None:
        return Word.ASSUMED, "no certificate of this machine; gmc certify-platform runs all inputs"
    if root.problems:
        return Word.REFUTED, root.sentence()
    return (Word.EXHAUSTED if root.certified else Word.TESTED), root.sentence()


def _proved(evidence: Evidence) -> Word:
    return Word.PROVED if evidence.proved else Word.UNKNOWN


def _proofs(evidence: Evidence) -> str:
    proved = sum(lemma["status"] == "proved" for lemma in evidence.lemmas)
    return f"{proved} of {len(evidence.lemmas)} lemmas replayed from certificates in this run, with no solver"


def assumptions(gatherer: Gatherer, assumed: Sequence[str], certificate: Certificate | None) -> list[dict[str, Any]]:
    """What is assumed, and who checked it."""
    torch, (root, root_text) = gatherer.against_torch, _root(certificate)
    followed = Word.REFUTED if torch.differing else Word.TESTED if torch.compared else Word.UNKNOWN
    found = [
        (
            "The gradient of the first update stays within the bound, as it enters the moments.",
            Word.UNKNOWN,
            "nobody yet: it lies in the future. load_guarded watches the first update and says whether it did",
        ),
        (
            "The run that resumes follows the op model of the claim, betas and eps as stored.",
            Word.UNKNOWN,
            "nobody yet; load_guarded compares them. Of this machine's torch see the next line",
        ),
        (
            "Torch on this machine follows that op model.",
            followed,
            f"this report: {torch.compared:,} states of this checkpoint, {torch.differing:,} differ"
            if torch.compared
            else "nobody here: this machine does not run it",
        ),
        (
            "Subnormal numbers are kept.",
            Word.TESTED,
            "this report: n = 2 operations in its own process, one on every thread of torch; flushing is refused",
        ),
        ("The platform's square root is within one unit in the last place, and monotone.", root, root_text),
    ]
    # The platform's root has its own line above, with what this machine knows of it.
    rest = [text for text in assumed if "platform's square root" not in text]
    found += [(text, Word.ASSUMED, "nobody by machine; see the trusted base") for text in rest]
    return [{"text": text, "word": word.value, "checked_by": by} for text, word, by in found]
