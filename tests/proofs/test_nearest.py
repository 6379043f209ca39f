"""Rounding to nearest: the statements are true of rounded numbers, and say nothing without each hypothesis."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs import stored
from tests.proofs.run import PRECISION
from tests.proofs.test_check import FAMILY
from tests.proofs.test_statement import run_of

from guarded_moments.proofs.check import NEAREST_NUMBER, SECOND_MOMENT
from guarded_moments.proofs.nearest import NEAREST, Nearest, nearest, no_further_than_zero, second_moment
from guarded_moments.proofs.statement import Family, families, statement
from guarded_moments.reference.floats import BINARY32


@pytest.mark.parametrize("kind", NEAREST)
def test_the_hypotheses_hold_of_a_rounded_binary32_and_so_does_the_conclusion(
    kind: str, rng: np.random.Generator
) -> None:
    stated = nearest(kind)
    smallest = float(BINARY32.smallest_normal)
    for _ in range(200):
        exact = float(rng.normal()) * (smallest * 2.0 ** rng.integers(1, 80) if kind == "normal" else smallest / 4)
        rounded = float(np.float32(exact))
        start = 2.0 ** float(np.floor(np.log2(max(abs(exact), smallest))))
        spacing = 2 * start * 2.0**-24
        if kind == "normal" and abs(exact) < smallest:
            continue
        values = {"x": exact, "r": rounded, "a": abs(exact), "h": spacing, "s": start, "u": 2.0**-24, "n": 2.0**-150}
        with mpmath.workprec(PRECISION):
            numbers = {name: mpf(value) for name, value in values.items()}
            for atom in (*stated.hypotheses, *stated.conclusion):
                terms = [
                    mpf(value.numerator) / value.denominator * mpmath.fprod(numbers[n] ** e for n, e in monomial)
                    for monomial, value in atom.polynomial.terms
                ]
                total = mpmath.fsum(terms)
                assert total == 0 if atom.relation.value == "==" else total >= 0, f"{atom} is false of {values}"


@pytest.mark.parametrize("family", families()[::4], ids=lambda family: family.name)
def test_the_rounded_second_moment_of_a_run_is_as_stated(family: Family, rng: np.random.Generator) -> None:
    stated = second_moment(statement(family))
    with mpmath.workprec(PRECISION):
        run = run_of(family, rng, [])
        false = [str(atom) for atom in (*stated.hypotheses, *stated.conclusion) if not run.holds(atom)]
        assert not false, false


def problem_of(name: str, stated: Nearest) -> str | None:
    return stored.problem_of(name, stated.hypotheses, stated.conclusion)


def test_no_hypothesis_about_the_second_moment_can_be_left_out() -> None:
    name, stated = f"{SECOND_MOMENT}{FAMILY.name}", second_moment(statement(FAMILY))
    assert problem_of(name, stated) is None
    last = next(one for one in statement(FAMILY).native.roundings if stated.conclusion[0].polynomial == one.result)
    fewer = stated._replace(hypotheses=stated.hypotheses - {no_further_than_zero(last)})
    assert problem_of(name, fewer) is not None, "a rounding that may err by anything keeps no sign"


@pytest.mark.parametrize("kind", NEAREST)
def test_a_wider_grid_does_not_fit_the_proof(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{NEAREST_NUMBER}{kind}"
    assert problem_of(name, nearest(kind)) is None
    monkeypatch.setitem(NEAREST, kind, (*NEAREST[kind][:-1], NEAREST[kind][-1].replace("h <= 2*", "h <= 3*")))
    assert problem_of(name, nearest(kind)) is not None
