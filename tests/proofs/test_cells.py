"""The bounds of a cell: their statements are true of real numbers, say something, and fit no other source."""

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs import stored
from tests.proofs.run import PRECISION, Run
from tests.proofs.test_check import changed

from guarded_moments.proofs import cells
from guarded_moments.proofs.cells import CellStatement, cell_by_ends, cell_by_slopes
from guarded_moments.proofs.check import CELL_BY_ENDS, CELL_BY_SLOPES
from guarded_moments.reference.guard import cells as by_ends
from guarded_moments.reference.guard import slopes as by_slopes
from guarded_moments.reference.guard.constants import GuardConstants

STATEMENTS = {CELL_BY_ENDS: cell_by_ends, CELL_BY_SLOPES: cell_by_slopes}


def given_of(chance: np.random.Generator) -> dict[str, mpf]:
    """A state, a recovered one, a cell of any width and a gradient inside, with the constants of a usual Adam."""
    w, c, b = mpf("0.1"), mpf("0.001"), mpf("0.3")
    given = dict.fromkeys(GuardConstants._fields, mpf(0))
    given |= {"w": w, "complement": 1 - w, "radicand": mpf("0.999") / b**2, "curvature": c / b**2, "eps": mpf("1e-8")}
    given |= {"gap_cap": b / mpmath.sqrt(c) * (1 + mpf(2) ** -60), "tiny": mpf(2) ** -1000}
    v = mpf(chance.random()) * mpf("1e-6")
    given |= {"m": mpf(chance.normal()) * mpf("1e-3"), "v": v, "v_hat": v * mpf(chance.uniform(0.8, 1.2))}
    given["m_hat"] = given["m"] * mpf(chance.uniform(0.9, 1.1))
    low = mpf(chance.uniform(0.1, 3)) * mpf("1e-3")
    width = low * mpf(2.0 ** -chance.integers(0, 12))
    return given | {"low": low, "g": low + width * mpf(chance.random()), "high": low + width}


def run_of(stated: CellStatement, chance: np.random.Generator) -> Run:
    return Run(given_of(chance), [stated.definitions], [])


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_hypothesis_holds_of_real_numbers_and_so_does_the_conclusion(
    name: str, rng: np.random.Generator, budget: int
) -> None:
    stated = STATEMENTS[name]()
    closest = mpf(0)
    with mpmath.workprec(PRECISION):
        for _ in range(30 * budget):
            run = run_of(stated, rng)
            false = [str(atom) for atom in sorted(stated.hypotheses, key=str) if not run.holds(atom)]
            assert not false, false
            for atom in stated.conclusion:
                assert run.holds(atom), f"the conclusion is false: {atom} at {run.values}"
            inside, terms, k = stated.at[1], stated.terms, stated.constants
            for sign, upper in zip((1, -1), stated.uppers, strict=True):
                weight = terms.pull + (k.w * inside.g).scaled(Fraction(sign))
                deviation = terms.shift * inside.end.reciprocal + weight * (inside.end.reciprocal - inside.native)
                closest = max(closest, abs(run.of(deviation)) / run.of(upper))
    assert 0.9 < closest <= 1, f"the bound is so far away that it says nothing: {closest}"


def problem_of(name: str) -> str | None:
    stated = STATEMENTS[name]()
    return stored.problem_of(name, stated.hypotheses, stated.conclusion)


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_source_as_it_is_fits_its_proof(name: str) -> None:
    assert problem_of(name) is None


@pytest.mark.parametrize(
    ("name", "module", "builder", "old", "new"),
    [
        (CELL_BY_ENDS, by_ends, "make_uppers", "maximum(maximum(a, b), maximum(c, d)))", "maximum(a, maximum(c, d)))"),
        (CELL_BY_ENDS, by_ends, "make_uppers", "minimum(minimum(a, b), minimum(c, d)))", "minimum(a, d))"),
        (CELL_BY_ENDS, by_ends, "make_uppers", "maximum(most, negate(least))", "most"),
        (CELL_BY_ENDS, by_ends, "make_uppers", "sub(pull, near), sub(pull, far)", "sub(pull, near), add(pull, far)"),
        (CELL_BY_ENDS, by_ends, "make_uppers", "mul(k.w, k.gap_cap)", "k.w"),
        (CELL_BY_ENDS, by_ends, "make_terms", "mul(k.complement, m)", "mul(k.complement, m_hat)"),
        (CELL_BY_ENDS, by_ends, "make_roots", "mul(k.radicand, v_hat)", "mul(k.radicand, v)"),
        (CELL_BY_SLOPES, by_slopes, "make_slope_range", "(low.end.g, high.end.g))", "(low.end.g, low.end.g))"),
        (CELL_BY_SLOPES, by_slopes, "make_slope_range", "share_at(low, high)", "share_at(high, high)"),
        (CELL_BY_SLOPES, by_slopes, "make_slope_range", "add(by_reciprocals, by_roots)", "by_reciprocals"),
        (
            CELL_BY_SLOPES,
            by_slopes,
            "make_slope_uppers",
            "sub(sub(largest, rise), minimum(a, b))",
            "sub(largest, rise)",
        ),
        (CELL_BY_SLOPES, by_slopes, "make_slope_uppers", "negate(add(least, rise))", "negate(add(largest, rise))"),
        (CELL_BY_SLOPES, by_slopes, "make_slope_uppers", "mul(width, maximum(most, zero))", "mul(width, most)"),
        (CELL_BY_SLOPES, by_slopes, "make_point", "div(gap, add(root, root_hat))", "div(gap, root)"),
    ],
)
def test_a_changed_bound_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType, builder: str, old: str, new: str
) -> None:
    wrong: Callable[..., object] = changed(getattr(module, builder), old, new)
    for holder in (by_ends, by_slopes, cells):
        if hasattr(holder, builder):
            monkeypatch.setattr(holder, builder, wrong)
    assert problem_of(name) is not None, f"{builder}: {old} became {new}, and the old proof still fits"
