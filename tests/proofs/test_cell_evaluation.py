"""What is evaluated of a cell: the statements are true of a run in binary64, and a smaller allowance does not fit."""

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs import stored
from tests.proofs.run import PRECISION, Run
from tests.proofs.test_cells import given_of
from tests.proofs.test_check import changed

from guarded_moments.proofs import cell_evaluation, cells
from guarded_moments.proofs.cell_evaluation import (
    EvaluatedCell,
    evaluated_at_gradient,
    evaluated_by_ends,
    evaluated_by_slopes,
)
from guarded_moments.proofs.check import EVALUATED_AT_GRADIENT, EVALUATED_BY_ENDS, EVALUATED_BY_SLOPES
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.guard import cells as by_ends
from guarded_moments.reference.guard import slopes as by_slopes
from guarded_moments.reference.guard.constants import GuardConstants

STATEMENTS = {EVALUATED_BY_ENDS: evaluated_by_ends, EVALUATED_BY_SLOPES: evaluated_by_slopes}
#: And what is evaluated from below.
ALL = {**STATEMENTS, EVALUATED_AT_GRADIENT: evaluated_at_gradient}


def run_of(made: EvaluatedCell, chance: np.random.Generator) -> Run:
    """A state, a recovered one and a cell, in numbers that binary32 holds; the constants are rounded up once."""
    given = given_of(chance)
    for name in ("m", "v", "m_hat", "v_hat", "low", "g", "high"):
        given[name] = mpf(float(np.float32(given[name])))
    run = Run(given, [made.exact.definitions, made.floats], [])
    run.hold({name: given[name] for name in GuardConstants._fields})
    return run


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_hypothesis_holds_of_a_run_in_binary64_and_so_does_the_conclusion(
    name: str, rng: np.random.Generator, budget: int
) -> None:
    made = STATEMENTS[name]()
    closest = mpf(0)
    with mpmath.workprec(PRECISION):
        for _ in range(10 * budget):
            run = run_of(made, rng)
            false = [str(atom) for atom in sorted(made.stated.hypotheses, key=str) if not run.holds(atom)]
            assert not false, false
            for atom in made.stated.conclusion:
                assert run.holds(atom), f"the conclusion is false: {atom} at {run.values}"
            for sign, upper in zip((1, -1), made.uppers, strict=True):
                inside, terms, k = made.exact.at[1], made.exact.terms, made.exact.constants
                weight = terms.pull + (k.w * inside.g).scaled(Fraction(sign))
                deviation = terms.shift * inside.end.reciprocal + weight * (inside.end.reciprocal - inside.native)
                closest = max(closest, abs(run.of(deviation)) / run.of(upper))
    assert 0.9 < closest <= 1, f"the bound is so far away that it says nothing: {closest}"


def test_an_operation_that_errs_by_more_breaks_a_hypothesis(rng: np.random.Generator) -> None:
    """The check can fail."""
    made = evaluated_by_ends()
    with mpmath.workprec(PRECISION):
        run = run_of(made, rng)
        run.values["float_rounded1"] = run.variable("float_rounded1") * (1 + mpf(2) ** -51)
        assert not all(run.holds(atom) for atom in made.stated.hypotheses)


def test_what_is_evaluated_from_below_is_true_of_a_run(rng: np.random.Generator, budget: int) -> None:
    made = evaluated_at_gradient()
    closest = mpf(0)
    with mpmath.workprec(PRECISION):
        for _ in range(10 * budget):
            run = run_of(made, rng)
            false = [str(atom) for atom in sorted(made.stated.hypotheses, key=str) if not run.holds(atom)]
            assert not false, false
            for atom in made.stated.conclusion:
                assert run.holds(atom), f"the conclusion is false: {atom} at {run.values}"
            for sign, lower in zip((1, -1), made.uppers, strict=True):
                closest = max(closest, run.of(lower) / abs(run.of(made.exact.deviation(sign))))
    assert 1 - 1e-12 < closest <= 1, f"the bound is so far away that it says nothing: {closest}"


def problem_of(name: str) -> str | None:
    stated = ALL[name]().stated
    return stored.problem_of(name, stated.hypotheses, stated.conclusion)


@pytest.mark.parametrize("name", ALL)
def test_the_source_as_it_is_fits_its_proof(name: str) -> None:
    assert problem_of(name) is None


CHANGES: list[tuple[str, ModuleType, str, str, str]] = [
    (EVALUATED_BY_ENDS, by_ends, "make_uppers", "add(start, mul(far, difference))", "start"),
    (EVALUATED_BY_ENDS, by_ends, "make_uppers", "add(plus, rounding), tail", "plus, tail"),
    (EVALUATED_BY_ENDS, by_ends, "make_uppers", "mul(inflation, add(start,", "mul(op.constant(1.0), add(start,"),
    (EVALUATED_BY_ENDS, by_ends, "make_uppers", "op.constant(_relative_error())", "op.constant(2.0**-53)"),
    (EVALUATED_BY_ENDS, by_ends, "make_end_of_roots", "div(mul(gap, both)", "div(mul(add(gap, gap), both)"),
    (EVALUATED_AT_GRADIENT, by_ends, "make_lowers", "return sub(plus, rounding), sub", "return plus, sub"),
    (EVALUATED_AT_GRADIENT, by_ends, "make_lowers", "_relative_error())", "2.0**-53)"),
    (EVALUATED_AT_GRADIENT, by_ends, "make_lowers", "mul(absolute(pull), difference)", "absolute(pull)"),
    (EVALUATED_BY_SLOPES, by_slopes, "make_slope_uppers", "return add(plus, rounding), add", "return plus, add"),
    (EVALUATED_BY_SLOPES, by_slopes, "make_slope_uppers", "op.constant(_relative_error())", "op.constant(2.0**-53)"),
    (EVALUATED_BY_SLOPES, by_slopes, "_make_magnitude", "mul(width, add(slope, mul(k.w, difference)))", "slope"),
    (EVALUATED_BY_SLOPES, by_slopes, "make_slope_range", "add(low.root_gap, at.root_gap)", "low.root_gap"),
]


@pytest.mark.parametrize(("name", "module", "builder", "old", "new"), CHANGES)
def test_a_smaller_allowance_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType, builder: str, old: str, new: str
) -> None:
    wrong: Callable[..., object] = changed(getattr(module, builder), old, new)
    for holder in (by_ends, by_slopes, cells, cell_evaluation):
        if hasattr(holder, builder):
            monkeypatch.setattr(holder, builder, wrong)
    assert problem_of(name) is not None, f"{builder}: {old} became {new}, and the old proof still fits"


@pytest.mark.parametrize("name", ALL)
def test_an_allowance_counted_with_fewer_roundings_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(RoundingCount, "mul", lambda _, a, b: a + b)
    for module in (by_ends, by_slopes):
        module._relative_error.cache_clear()
    try:
        assert problem_of(name) is not None
    finally:
        for module in (by_ends, by_slopes):
            module._relative_error.cache_clear()
