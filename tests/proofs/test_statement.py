"""The theorem's hypotheses hold in real runs: all of them are put to the numbers of one, and so is the conclusion."""

from collections.abc import Iterable

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.proofs.run import PRECISION, Run, nearest

from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.evaluation import Evaluation, accepted, evaluation
from guarded_moments.proofs.statement import NATIVE, RECOVERED, Family, families, statement
from guarded_moments.reference.arithmetic.rounding_count import inflation
from guarded_moments.reference.floats import round_up
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.op_models import Interpolation


def constants(family: Family, chance: np.random.Generator) -> dict[str, mpf]:
    def binary32(value: float) -> mpf:
        return mpf(float(np.float32(value)))

    from_end = family.options.interpolate_from_end and family.model.interpolation is not Interpolation.FMA_TWICE
    return {
        "w": binary32(0.6 if from_end or family.options.interpolate_from_end else 0.1),
        "c": binary32(0.001),
        "beta2": binary32(0.999),
        "root": binary32(0.3),
        "eps": binary32(1e-8),
        "step": binary32(1e-3),
        "g": binary32(chance.normal() * 1e-3),
        "gradient_bound": mpf(1),
        "tiny": mpf(2) ** -1000,
        "u": mpf(2) ** -24,
        "n": mpf(2) ** -150,
        "v_max": binary32(chance.random() * 2e-6),
    }


def run_of(family: Family, chance: np.random.Generator, guard: Iterable[Definitions]) -> Run:
    """Both updates and the guard's constants in numbers; `guard` has its own quantities, exact and evaluated."""
    stated = statement(family)
    m, v = chance.normal() * 1e-3, chance.random() * 1e-6
    given = constants(family, chance)
    state = {"m": m, "v": v}
    for prefix, factor in ((NATIVE, 1.0), (RECOVERED, 1 + chance.normal() * 1e-2)):
        given |= {prefix + name: mpf(float(np.float32(value * factor))) for name, value in state.items()}
    definitions = [stated.native.definitions, stated.recovered.definitions, stated.exact, *guard]
    run = Run(given, definitions, [*stated.native.roundings, *stated.recovered.roundings])
    for name, needed in zip(("moment", "reciprocal", "gradient", "floor"), stated.error, strict=True):
        run.values[f"slack_{name}"] = run.of(needed.polynomial) * (1 + mpf(2) ** -60)  # type: ignore[attr-defined]
    run.hold({name: run.of(getattr(stated.constants, name)) for name in GuardConstants._fields})
    return run


def accepted_run(family: Family, chance: np.random.Generator, evaluated: Evaluation) -> Run:
    run = run_of(family, chance, [statement(family).guard, evaluated.floats])
    run.values["inflation"] = mpf(round_up(inflation(evaluated.roundings + 1)))
    product = run.of(evaluated.evaluated) * run.values["inflation"]
    run.values["compared"] = nearest(product, 53)
    run.values["float_last"] = run.values["compared"] / product - 1
    return run


@pytest.fixture(scope="module")
def evaluated() -> Evaluation:
    return evaluation()


@pytest.mark.parametrize("family", [*families(), *families(amsgrad=True)], ids=lambda family: family.name)
def test_every_hypothesis_holds_in_a_run_and_so_does_the_conclusion(
    family: Family, rng: np.random.Generator, evaluated: Evaluation
) -> None:
    stated = statement(family)
    whole = accepted(stated, evaluated)
    with mpmath.workprec(PRECISION):
        run = accepted_run(family, rng, evaluated)
        false = [str(atom) for atom in sorted(whole.hypotheses, key=str) if not run.holds(atom)]
        assert not false, false
        for atom in (*stated.conclusion, *whole.conclusion):
            assert run.holds(atom), f"the conclusion is false: {atom}"
        difference = abs(run.of(stated.recovered.update - stated.native.update))
        assert difference > 0, "a run without a deviation says nothing"
        assert run.values["compared"] < 1000 * difference, "the bound is so far away that it says nothing"


def test_a_hypothesis_that_fails_is_seen(evaluated: Evaluation, rng: np.random.Generator) -> None:
    """The check can fail: an operation that errs by two units in the last place breaks a hypothesis."""
    family = families()[0]
    whole = accepted(statement(family), evaluated)
    with mpmath.workprec(PRECISION):
        run = accepted_run(family, rng, evaluated)
        run.values["native_relative1"] = run.variable("native_relative1") + mpf(2) ** -22
        assert not all(run.holds(atom) for atom in whole.hypotheses)
