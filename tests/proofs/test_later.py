"""What is proved of later updates: the stored proofs fit the source as it is, and no other."""

from collections.abc import Sequence
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from tests.proofs.stored import problem_of
from tests.proofs.test_check import changed

from guarded_moments.proofs import later
from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.check import EVERY, INEXACT
from guarded_moments.proofs.lemmas import all_lemmas
from guarded_moments.proofs.statement import families, statement
from guarded_moments.reference.horizon import carrying, unbounded

FAMILY = families()[0]
LEMMAS = {lemma.name: lemma for lemma in all_lemmas()}


def problem_now() -> str | None:
    """What the check says of both kinds of theorem with the source as it is now."""
    each, from_moments = later.every(), later.inexact(statement(FAMILY))
    name = f"{INEXACT}{FAMILY.name}"
    return problem_of(EVERY, each.hypotheses, each.conclusion) or problem_of(
        name, from_moments.hypotheses, from_moments.conclusion
    )


def test_the_source_as_it_is_fits_its_proofs() -> None:
    assert problem_now() is None


@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [
        (carrying, "first_moment_after", "own.moment * computed", "own.moment * before.magnitude"),
        (carrying, "first_moment_after", "real.complement * before.error +", ""),
        (carrying, "second_moment_after", "(1 + before.relative) - 1", "(1 + before.relative / 2) - 1"),
        (carrying, "second_moment_after", "real.beta2 * before.absolute +", ""),
        (carrying, "denominator_distance", "relative / 2 +", "relative / 3 +"),
        (carrying, "denominator_distance", "/ real.root / real.eps", "/ real.eps"),
        (carrying, "update_distance", "distance * first_moment", "0 * first_moment"),
        (carrying, "update_distance", "real.complement * before.error +", ""),
        (carrying, "update_distance", "/ (1 - distance)", "/ 1"),
        (carrying, "per_gradient", "root_up(real.c) / real.root", "root_up(real.c)"),
        (carrying, "own_error", "real.w * interpolation,", "real.w * interpolation / 2,"),
        (carrying, "own_error", "gradient=u + interpolation", "gradient=interpolation"),
        (unbounded, "make_every_bound", "mul(terms.gradient, terms.gradient)", "terms.gradient"),
        (unbounded, "make_every_bound", "add(terms.first_moment, terms.second_moment)", "terms.first_moment"),
        (unbounded, "make_every_bound", "mul(k.step, sqrt(", "mul(k.w, sqrt("),
    ],
)
def test_a_changed_formula_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, old: str, new: str
) -> None:
    monkeypatch.setattr(later, name, changed(getattr(module, name), old, new))
    assert problem_now() is not None, f"{name}: {old} became {new}, and the old proof still fits"


def holds(atoms: Sequence[Atom], point: dict[str, Fraction]) -> bool:
    return all(atom.holds(point) for atom in atoms)


def run_of_sums(rng: np.random.Generator) -> dict[str, Fraction]:
    """The variables of `share_of_sequence_grows` after some updates by gradients as they are drawn, or as they grow."""
    a, b = Fraction(9, 10), Fraction(int(rng.integers(820, 999)), 1000)
    w, c = 1 - a, 1 - b
    x, total, most = Fraction(0), Fraction(0), Fraction(0)
    growing = bool(rng.integers(2))
    for update in range(6):
        g = (a / b) ** (5 - update) if growing else Fraction(int(rng.integers(-9, 10)))
        point = {"x": x, "S": total, "R": most, "a": a, "b": b, "w": w, "c": c, "g": g, "q": a * a / b, "W": w * w / c}
        assert holds(LEMMAS["share_of_sequence_grows"].hypotheses, point), point
        assert holds(LEMMAS["share_of_sequence_grows"].goal, point), point
        x, total, most = a * x + w * g, b * total + c * g * g, a * a / b * most + w * w / c
    return {"x": x, "S": total, "R": most}


def test_sums_over_real_sequences_fulfil_the_lemma_at_every_update(rng: np.random.Generator, budget: int) -> None:
    closest = Fraction(0)
    for _ in range(40 * budget):
        end = run_of_sums(rng)
        closest = max(closest, end["x"] ** 2 / (end["R"] * end["S"])) if end["S"] else closest
    assert closest == 1, "gradients that grow by beta1/beta2 attain it"
