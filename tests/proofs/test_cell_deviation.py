"""The deviation on a cell: the statements are true of numbers, and a smaller slack has no proof."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs import stored
from tests.proofs.run import PRECISION
from tests.proofs.test_check import FAMILY, changed
from tests.proofs.test_statement import run_of

from guarded_moments.proofs import cell_deviation
from guarded_moments.proofs.cell_deviation import CellDeviation
from guarded_moments.proofs.check import CELL_DEVIATION, ON_CELL
from guarded_moments.proofs.statement import NATIVE, RECOVERED, STATE, Family, families, statement
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount, inflation
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard import cell_slack
from guarded_moments.reference.guard.constants import GuardConstants

OF_FAMILY = f"{ON_CELL}{FAMILY.name}"


@pytest.fixture(scope="module")
def made() -> CellDeviation:
    return cell_deviation.cell_deviation()


@pytest.mark.parametrize("family", families()[::3], ids=lambda family: family.name)
def test_every_hypothesis_holds_in_a_run_and_so_does_the_conclusion(
    family: Family, rng: np.random.Generator, made: CellDeviation
) -> None:
    stated = statement(family)
    whole = cell_deviation.family_deviation(stated, made)
    with mpmath.workprec(PRECISION):
        run = run_of(family, rng, [made.cell.definitions, made.floats])
        given = {name: run.of(getattr(stated.constants, name)) for name in GuardConstants._fields}
        for prefix, hat in ((NATIVE, ""), (RECOVERED, "_hat")):
            given |= {name + hat: run.values[prefix + name] for name in STATE}
        size = abs(run.values["g"])
        run.values |= given | {"size": size, "low": size, "high": mpf(float(np.float32(size) * np.float32(1.01)))}
        run.values["inflation"] = mpf(round_up(inflation(made.roundings)))
        inside, k = made.cell.at[1], made.cell.constants
        moments = [run.of(k.complement) * run.values[name] + run.of(k.w) * run.values["g"] for name in ("m_hat", "m")]
        real = moments[0] * run.of(inside.end.reciprocal) - moments[1] * run.of(inside.native)
        run.values["upper"] = mpf(float(np.nextafter(float(abs(real)), np.inf)))
        false = [str(atom) for atom in sorted(whole.hypotheses, key=str) if not run.holds(atom)]
        assert not false, false
        for atom in (*whole.conclusion, *made.conclusion):
            assert run.holds(atom), f"the conclusion is false: {atom}"
        difference = abs(run.of(stated.recovered.update - stated.native.update))
        assert 0 < run.of(made.evaluated) < 1000 * difference, "the bound is so far away that it says nothing"


def problems() -> list[str | None]:
    """What the check says of the stored proofs, of any cell and of one family, with the source as it is now."""
    made = cell_deviation.cell_deviation()
    whole = cell_deviation.family_deviation(statement(FAMILY), made)
    claims = [(CELL_DEVIATION, made.hypotheses, made.conclusion), (OF_FAMILY, whole.hypotheses, whole.conclusion)]
    return [stored.problem_of(*claim, among=(CELL_DEVIATION, OF_FAMILY)) for claim in claims]


def test_the_source_as_it_is_fits_its_proof() -> None:
    assert problems() == [None, None]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("low.reciprocal, high.reciprocal, high.end.g)", "high.reciprocal, high.reciprocal, high.end.g)"),
        ("low.end.reciprocal, high.end.reciprocal, high.end.g)", "low.reciprocal, high.reciprocal, high.end.g)"),
        ("div(mul(largest, last), k.gap_cap)", "div(last, k.gap_cap)"),
        ("add(native, recovered)", "native"),
        ("add(k.slack_floor, k.slack_floor)", "k.slack_floor"),
        ("mul(k.slack_moment, absolute(m))", "k.slack_moment"),
    ],
)
def test_a_smaller_slack_does_not_fit_the_proof(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    wrong: Callable[..., object] = changed(cell_slack.make_deviation_upper, old, new)
    monkeypatch.setattr(cell_deviation, "make_deviation_upper", wrong)
    assert None not in problems(), f"{old} became {new}, and the old proof still fits"


def test_an_inflation_for_fewer_roundings_does_not_fit_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundingCount, "mul", lambda _, a, b: max(a, b))
    cell_slack.deviation_roundings.cache_clear()
    try:
        assert problems()[0] is not None
    finally:
        cell_slack.deviation_roundings.cache_clear()
