"""The proof file: it proves every claim, a corrupted one does not, and a changed source does not fit it."""

import __future__

import dataclasses
import inspect
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from guarded_moments.proofs import Lemma, ProofFileError, Theorem, all_lemmas, check, check_certificates, statement
from guarded_moments.proofs.check import EVALUATION, FIRST_UPDATE, LEMMA, proof_text
from guarded_moments.proofs.cover import paths
from guarded_moments.proofs.decay import forms
from guarded_moments.proofs.evaluation import evaluation
from guarded_moments.proofs.replay import replay
from guarded_moments.proofs.statement import Family, families
from guarded_moments.reference import adam
from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.guard import closed_form, constants, slack
from guarded_moments.reference.implementations import IMPLEMENTATIONS

FAMILY = next(family for family in families() if family.name == "fma/fma_product/platform/divide/multiply_then_divide")


#: Where a step names earlier steps, and where it names polynomials.
STEPS = {"instantiate": (1,), "cut": (1, 2), "cases": (1, 2), "eliminate_root": (1, 4), "eliminate_reciprocal": (1, 4)}


@cache
def whole() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(proof_text())
    return data


def part(*names: str) -> dict[str, Any]:
    """A proof file with some named theorems and what they rest on."""
    steps = whole()["steps"]
    needed = {step for name in names for step in whole()["theorems"][name]}
    for index in range(len(steps) - 1, -1, -1):
        if index in needed:
            needed.update(steps[index][place] for place in STEPS.get(steps[index][0], ()))
    position = {old: new for new, old in enumerate(sorted(needed))}
    polynomials: dict[int, int] = {}

    def renumbered(value: int) -> int:
        return polynomials.setdefault(value, len(polynomials))

    kept = []
    for old in sorted(needed):
        step = json.loads(json.dumps(steps[old]))
        for place in STEPS.get(step[0], ()):
            step[place] = position[step[place]]
        for holder, key in polynomials_in(step):
            holder[key] = renumbered(holder[key])
        kept.append(step)
    used = [json.loads(json.dumps(whole()["polynomials"][old])) for old in polynomials]
    theorems = {name: [position[step] for step in whole()["theorems"][name]] for name in names}
    return {"polynomials": used, "steps": kept, "theorems": theorems}


def polynomials_in(step: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Every place of a step that holds the number of a polynomial."""
    match step:
        case ["assume", atom]:
            yield atom, 1
        case ["certify", hypotheses, goal, refutations]:
            yield from ((atom, 1) for atom in [*hypotheses, goal])
            for products, multiples in refutations:
                yield from ((product[2], index) for product in products for index in range(len(product[2])))
                yield from ((multiple, 1) for multiple in multiples)
        case ["instantiate", _, values]:
            yield from ((values, name) for name in values)
        case ["cases", *_] | ["eliminate_root", *_] | ["eliminate_reciprocal", *_]:
            yield step, 3


def test_every_claim_is_proved_without_a_solver() -> None:
    """In a process of its own: another test may have loaded one."""
    program = (
        "import sys\nfrom guarded_moments.proofs import check_certificates\n"
        "claims = list(check_certificates())\n"
        "assert not {'z3', 'cvc5'} & sys.modules.keys()\n"
        "print(len(claims), [claim.name for claim in claims if claim.problem is not None])"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    number, unproved = ran.stdout.split(maxsplit=1)
    assert unproved.strip() == "[]"
    of_families = sum(6 + 3 * len(forms(family)) for family in families())
    of_families += sum(2 + len(forms(family)) for family in families(amsgrad=True))
    assert int(number) == of_families + 13 + len(paths()) + len(all_lemmas())


def test_a_certificate_with_one_other_coefficient_proves_nothing() -> None:
    """Every coefficient of every certificate of some lemmas, one at a time."""
    refused = restated = 0
    for name in ("reciprocal_gap_decreases", "rounded_operation", "third_term_stationary"):
        data = part(f"{LEMMA}{name}")
        before = statements(data)
        assert before is not None
        for holder, key, change, scaling in coefficients(data):
            kept = holder[key]
            holder[key] = change(kept)
            after = statements(data)
            # The proof of another statement is no proof of the claim; scaling an atom leaves the statement as it is.
            assert after != before or scaling, f"{name}: {kept} became {holder[key]}, and the claim is still proved"
            refused, restated = refused + (after is None), restated + (after is not None)
            holder[key] = kept
    assert refused > 150, (refused, restated)


def statements(data: dict[str, Any]) -> list[tuple[Any, Any]] | None:
    """What a proof file proves, or None if it proves nothing."""
    try:
        return [(one.hypotheses, one.conclusion) for found in replay(json.dumps(data)).values() for one in found]
    except ProofFileError:
        return None


def coefficients(data: dict[str, Any]) -> Iterator[tuple[list[Any], int, Callable[[Any], Any], bool]]:
    """Every coefficient that a proof has, with a change of it, and whether the change only scales an atom."""
    for polynomial in data["polynomials"]:
        for term in polynomial:
            yield term, 0, lambda value: str(Fraction(value) * Fraction(8, 7)), len(polynomial) == 1
    for step in data["steps"]:
        if step[0] == "certify":
            for products, _ in step[3]:
                for product in products:
                    yield product, 0, lambda value: str(Fraction(value) * Fraction(8, 7)), False


def test_random_damage_never_proves_the_claim(seed: int) -> None:
    """Another reference, substitution or conclusion, in the theorem of one op model."""
    name = f"{FIRST_UPDATE}{FAMILY.name}"
    data = part(name)
    chance = random.Random(seed)  # noqa: S311 - it chooses what to damage
    stated = statement.statement(FAMILY)
    claim = check._Claim(name, "", stated.hypotheses, stated.conclusion)
    for _ in range(12):
        damaged = json.loads(json.dumps(data))
        step = chance.choice([s for s in damaged["steps"] if s[0] in {"cut", "instantiate", "certify"}])
        if step[0] == "cut":
            step[1], step[2] = step[2], step[1]
        elif step[0] == "instantiate":
            variable = chance.choice(sorted(step[2]))
            step[2][variable] = (step[2][variable] + 1) % len(damaged["polynomials"])
        else:
            step[2][1] = (step[2][1] + 1) % len(damaged["polynomials"])
        try:
            problem = check._problem(claim, replay(json.dumps(damaged))[name])
        except ProofFileError as error:
            problem = str(error)
        assert problem is not None, f"the damaged step still proves the claim: {step}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a proof file"),
        ("{}", "not a proof file"),
        ('{"polynomials": [], "steps": [["say so"]], "theorems": {}}', "no such rule"),
    ],
)
def test_what_is_no_proof_file_is_refused_in_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(ProofFileError, match=reason):
        replay(text)


def problem_now(family: statement.Family = FAMILY) -> str | None:
    """What the check says of one op model's theorem, with the source as it is now."""
    name = f"{FIRST_UPDATE}{family.name}"
    stated = statement.statement(family)
    return check._problem(check._Claim(name, "", stated.hypotheses, stated.conclusion), proof_of(name))


@cache
def proof_of(name: str) -> tuple[Theorem, ...]:
    return replay(json.dumps(part(name)))[name]


@pytest.mark.parametrize(
    "name",
    [
        FAMILY.name,
        "separate/separate/correct/divide/multiply_then_divide",
        "separate/separate_square/correct/divide/divide_twice",
        "fma/fma_square/correct/divide/quotient",
        "fma/fma_square/correct/divide/divide_then_multiply",
    ],
)
def test_the_source_as_it_is_fits_its_proof(name: str) -> None:
    """In this process, so that a changed source would be seen; one op model of each kind that the slack tells apart."""
    assert problem_now(next(family for family in families() if family.name == name)) is None


def changed(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """A function of the reference with one piece of its source changed."""
    source = inspect.getsource(function)
    assert source.count(old) == 1, (function, old)
    namespace = dict(vars(inspect.getmodule(function)))
    exec(  # noqa: S102 - the reference's own source
        compile(
            source.replace(old, new),
            f"<changed {function.__name__}>",
            "exec",
            flags=__future__.annotations.compiler_flag,
        ),
        namespace,
    )
    result: Callable[..., Any] = namespace[function.__name__]
    return result


@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [
        (slack, "denominator_error", "3 * u + 3 * u**2", "2 * u + 3 * u**2"),
        (slack, "denominator_error", "2 * n\n", "1 * n\n"),
        (slack, "denominator_error", "root_error = 3 * u if", "root_error = 2 * u if"),
        (slack, "denominator_error", "kappa / 2 +", "kappa / 3 +"),
        (slack, "interpolation_error", "u + u**2, n", "u, n"),
        (slack, "update_error", "else 2 * u + u**2", "else u + u**2"),
        (slack, "update_error", "(of_moment + of_gradient) * largest_share", "of_moment * largest_share"),
        (slack, "update_error", "floor=n if", "floor=n / 2 if"),
        (constants, "exact_constants", "9 / root_up", "10 / root_up"),
        (constants, "exact_constants", "radicand_cap=inverse_q / 2", "radicand_cap=inverse_q / 3"),
        (constants, "exact_constants", "(16 * eps)", "(17 * eps)"),
        (constants, "exact_constants", "curvature=c / b**2", "curvature=c / b"),
        (closed_form, "make_bound_terms", "mul(k.complement, absolute(m))", "mul(k.w, absolute(m))"),
        (closed_form, "make_bound_terms", "distance(m_hat, m)), reciprocal_hat)", "distance(m_hat, m)), reciprocal)"),
        (closed_form, "make_third_term", "mul(low, low), tiny", "mul(low, low), low"),
        (closed_form, "make_deviation_bound", "add(k.slack_floor, k.slack_floor)", "k.slack_floor"),
        (closed_form, "make_trajectory_slack", "add(proportional, k.slack_gradient)", "proportional"),
    ],
)
def test_a_changed_formula_or_constant_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, old: str, new: str
) -> None:
    wrong = changed(getattr(module, name), old, new)
    monkeypatch.setattr(module, name, wrong)
    if hasattr(statement, name):
        monkeypatch.setattr(statement, name, wrong)
    problem = problem_now()
    assert problem is not None, f"{name}: {old} became {new}, and the old proof still fits"


def test_a_changed_step_does_not_fit_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = changed(adam.make_denominator, "op.div if", "op.mul if")
    monkeypatch.setattr(adam, "make_denominator", wrong)
    assert problem_now() is not None


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("add", lambda _, a, b: max(a, b)),
        ("mul", lambda _, a, b: max(a, b) + 1),
        ("div", lambda _, a, b: a + b),
        ("sqrt", lambda _, a: -(-a // 2) + 1),
        ("distance", lambda _, a, b: a + b),
        ("constant", lambda _, value: 0),
    ],
)
def test_a_rule_that_counts_fewer_roundings_does_not_fit_the_proof(
    monkeypatch: pytest.MonkeyPatch, operation: str, rule: Callable[..., int]
) -> None:
    proved = replay(json.dumps(part(EVALUATION)))[EVALUATION]
    monkeypatch.setattr(RoundingCount, operation, rule)
    stated = evaluation()
    problem = check._problem(check._Claim(EVALUATION, "", stated.hypotheses, [stated.conclusion]), proved)
    assert problem is not None, f"{stated.roundings} roundings were counted, and the old proof still fits"


def test_every_op_model_has_a_family() -> None:
    names = {family.name for family in families()}
    models = {model for implementation in IMPLEMENTATIONS.values() for model in implementation.models}
    for model in models:
        for from_end in (False, True):
            assert Family(model, StepOptions(interpolate_from_end=from_end)).name in names


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("two_trajectories", lambda one: {"then": one.twin, "twin": one.then}, "another conclusion"),
        ("rounding_is_monotone", lambda one: {"given": one.given[1:]}, "does not assume"),
        ("gap_on_cell", lambda one: {"name": "gap"}, "no proof"),
    ],
)
def test_a_lemma_that_says_more_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Lemma], dict[str, Any]], problem: str
) -> None:
    (lemma,) = [one for one in all_lemmas() if one.name == name]
    monkeypatch.setattr(check, "all_lemmas", lambda: (dataclasses.replace(lemma, **change(lemma)),))
    monkeypatch.setattr(check, "families", lambda **_: ())
    claims = [claim for claim in check_certificates(json.dumps(part(f"{LEMMA}{name}"))) if claim.name.startswith(LEMMA)]
    assert problem in str(claims[0].problem)
