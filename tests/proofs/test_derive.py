"""The derivation: it goes through from nothing, refuses what does not follow, and gives the file that is stored."""

import pytest

from guarded_moments.proofs.check import proof_text
from guarded_moments.proofs.derive.__main__ import derive
from guarded_moments.proofs.derive.amsgrad import FirstUpdateWithAmsgrad
from guarded_moments.proofs.derive.context import Context, DerivationError, Prover
from guarded_moments.proofs.derive.first_update import FirstUpdate
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.statement import families, statement


@pytest.mark.timeout(600)
def test_the_theorem_is_derived_from_nothing(budget: int) -> None:
    """One family without amsgrad and with it; with `--oracle` the whole file, byte for byte."""
    if budget == 1:
        tools = Toolbox(Prover())
        for theorem, family in (
            (FirstUpdate(tools), families()[0]),
            (FirstUpdateWithAmsgrad(tools), families(amsgrad=True)[0]),
        ):
            stated = statement(family)
            shown = theorem.derive(stated)
            assert [one.conclusion for one in shown] == list(stated.conclusion)
            assert all(one.theorem.hypotheses <= stated.hypotheses for one in shown)
    else:
        assert derive() == proof_text()


def test_a_statement_that_concludes_more_is_refused() -> None:
    stated = statement(families()[0])
    smaller = stated._replace(conclusion=(stated.conclusion[0], stated.conclusion[0]))
    with pytest.raises(DerivationError, match="concludes"):
        FirstUpdate(Toolbox(Prover())).derive(smaller)


def test_the_theorem_of_adam_does_not_cover_amsgrad() -> None:
    """Its root is of another number than the plain derivation is about."""
    with pytest.raises(DerivationError, match="not known"):
        FirstUpdate(Toolbox(Prover())).derive(statement(families(amsgrad=True)[0]))


def test_what_does_not_follow_is_refused() -> None:
    context = Context(Prover(), "0 <= x")
    with pytest.raises(DerivationError, match="cannot show 1 <= x"):
        context.by("1 <= x", "0 <= x")
    with pytest.raises(DerivationError, match="not known: x - y >= 0"):
        context.by("0 <= x - y + 1", "y <= x")
