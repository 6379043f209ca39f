"""A dropped cell: the statements are true of numbers, and a search that compared something else has no proof."""

from collections.abc import Callable
from types import ModuleType

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs import stored
from tests.proofs.run import PRECISION, Run, nearest
from tests.proofs.test_cell_evaluation import run_of as run_of_cell
from tests.proofs.test_check import FAMILY, changed
from tests.proofs.test_statement import run_of

from guarded_moments.proofs import cell_evaluation, cleared
from guarded_moments.proofs.check import CLEARED, ROWS, SEARCHED
from guarded_moments.proofs.cleared import Searched, searched
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Family, families, statement
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard import allowance
from guarded_moments.reference.guard import cells as by_ends
from guarded_moments.reference.guard.constants import GuardConstants

OF_FAMILY = f"{CLEARED}{FAMILY.name}"


def tolerate(run: Run, search: Searched) -> None:
    """Choose the threshold so that the cell is just dropped."""
    run.values["inflation"] = mpf(round_up(inflation(search.roundings)))
    most = run.of(search.upper) * run.variable("held_step") + run.of(search.slack)
    run.values["held_threshold"] = nearest(most * (1 + mpf(2) ** -44), 53)


def test_every_hypothesis_holds_of_a_dropped_cell_and_so_does_the_conclusion(rng: np.random.Generator) -> None:
    search = searched()
    with mpmath.workprec(PRECISION):
        for _ in range(10):
            run = run_of_cell(search.cell, rng)
            for name, value in (("step", "1e-3"), ("slack_moment", "1e-6"), ("slack_gradient", "1e-6")):
                run.values[name] = mpf(value)
            run.hold({name: run.values[name] for name in GuardConstants._fields})
            tolerate(run, search)
            false = [str(atom) for atom in sorted(search.hypotheses, key=str) if not run.holds(atom)]
            assert not false, false
            for atom in search.conclusion:
                assert run.holds(atom), f"the conclusion is false: {atom} at {run.values}"


@pytest.fixture(scope="module")
def search() -> Searched:
    return searched()


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_hypothesis_of_a_family_holds_in_a_run_and_so_does_the_conclusion(
    family: Family, rng: np.random.Generator, search: Searched
) -> None:
    stated = statement(family)
    whole = cleared.cleared(stated, search)
    with mpmath.workprec(PRECISION):
        run = run_of(family, rng, [search.cell.exact.definitions, search.cell.floats])
        given = {name: run.of(getattr(stated.constants, name)) for name in GuardConstants._fields}
        for prefix, hat in ((NATIVE, ""), (RECOVERED, "_hat")):
            given |= {name + hat: run.values[prefix + name] for name in STATE}
        size = abs(run.values["g"])
        run.values |= given | {"size": size, "low": size, "high": mpf(float(np.float32(size) * np.float32(1.01)))}
        tolerate(run, search)
        false = [str(atom) for atom in sorted(whole.hypotheses, key=str) if not run.holds(atom)]
        assert not false, false
        difference = abs(run.of(stated.recovered.update - stated.native.update))
        for atom in whole.conclusion:
            assert run.holds(atom), f"the conclusion is false: {atom}"
        assert difference > 0, "a run without a deviation says nothing"
        assert run.values["held_threshold"] < 1000 * difference, "the bound is so far away that it says nothing"


@pytest.mark.parametrize("cells", ROWS.values())
def test_a_row_is_one_cell_at_each_gradient(search: Searched, cells: int) -> None:
    """Nothing but where the gradient is, with respect to the cuts, is left out of what all cells assume."""
    of_row, g = cleared.row(search, cells), Polynomial.variable("g")
    assert len(of_row.renamed) == cells == len(of_row.cuts) + 1
    sides = {place: {str(g - cut)} for place, cut in enumerate(of_row.cuts, start=1)}
    for place, cut in enumerate(of_row.cuts):
        sides.setdefault(place, set()).add(str(cut - g))
    for place, values in enumerate(of_row.renamed):
        one = {atom.substitute(values) for atom in search.hypotheses}
        assert {str(missing.polynomial) for missing in one - of_row.hypotheses} == sides[place]


def problems() -> list[str | None]:
    """What the check says of the stored proofs, of any cell and of one family, with the source as it is now."""
    search = searched()
    whole = cleared.cleared(statement(FAMILY), search)
    claims = [(SEARCHED, search.hypotheses, search.conclusion), (OF_FAMILY, whole.hypotheses, whole.conclusion)]
    return [stored.problem_of(*claim, among=(SEARCHED, OF_FAMILY)) for claim in claims]


def test_the_source_as_it_is_fits_its_proof() -> None:
    assert problems() == [None, None]


@pytest.mark.parametrize(
    ("module", "builder", "old", "new"),
    [
        (allowance, "make_allowance", ", k.step), inflation)", ", k.step), op.constant(1.0))"),
        (allowance, "make_allowance", "m_hat, v_hat), inflation)", "m_hat, v_hat), op.constant(1.0))"),
        (allowance, "make_allowance", "sub(k.threshold, slack)", "k.threshold"),
        (allowance, "make_update_slack", "add(k.slack_floor, k.slack_floor)", "k.slack_floor"),
        (allowance, "make_update_slack", "add(native, recovered)", "native"),
        (allowance, "make_update_slack", "sqrt(mul(k.radicand, v_hat))", "sqrt(mul(k.radicand, v))"),
        (by_ends, "make_uppers", "add(plus, rounding), tail", "plus, tail"),
    ],
)
def test_a_search_that_compares_something_else_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, builder: str, old: str, new: str
) -> None:
    wrong: Callable[..., object] = changed(getattr(module, builder), old, new)
    for holder in (allowance, by_ends, cleared, cell_evaluation):
        if hasattr(holder, builder):
            monkeypatch.setattr(holder, builder, wrong)
    assert None not in problems(), f"{builder}: {old} became {new}, and the old proof still fits"


def test_an_inflation_for_fewer_roundings_does_not_fit_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundingCount, "mul", lambda _, a, b: a)
    assert None not in problems()
