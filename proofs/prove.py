"""Runs the solver over lemmas, one outcome at a time, so that a caller can show progress."""

from collections.abc import Iterable, Iterator

from guarded_moments.proofs.lemma import Lemma
from guarded_moments.proofs.solvers import Outcome, examine


def prove_all(lemmas: Iterable[Lemma]) -> Iterator[Outcome]:
    """Examine lemmas in order.

    Args:
        lemmas: what to examine.

    Yields:
        The outcome of each lemma as soon as it is known.  The set is proved only if every outcome
        is `established`, and there is at least one.
    """
    for lemma in lemmas:
        yield examine(lemma)
