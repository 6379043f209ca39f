"""Weight decay: a step is the entering gradient, the kept parameter and the update, and every claim says so."""

from dataclasses import replace

import pytest

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.decay import Form, decayed, entering_and_kept, forms
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.evaluation import accepted, evaluation
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import NATIVE, Family, families, scalars_of, statement
from guarded_moments.proofs.symbolic import RoundedArithmetic
from guarded_moments.reference.adam import (
    Decay,
    make_effective_gradient,
    make_from_root,
    make_root,
    make_shrunk,
    make_until_root,
    make_update,
)
from guarded_moments.reference.implementations import IMPLEMENTATIONS

P, G, M, V = (Polynomial.variable(name) for name in ("p", "g", f"{NATIVE}m", f"{NATIVE}v"))
FORMS = [(family, form) for family in families() for form in forms(family)]


def test_every_op_model_has_its_forms() -> None:
    """No implementation decays in a way that no claim is about."""
    covered = {(family.name, form.name) for family, form in FORMS}
    for implementation in IMPLEMENTATIONS.values():
        for model in implementation.models:
            for family in families():
                if replace(family, model=model).name == family.name:
                    assert (family.name, f"l2/{model.l2_decay.name}".lower()) in covered
                    assert (family.name, f"decoupled/{model.decoupled_decay.name}".lower()) in covered


@pytest.mark.parametrize(("family", "form"), FORMS, ids=lambda one: one.name)
def test_a_step_is_made_of_what_enters_what_is_kept_and_the_update(family: Family, form: Form) -> None:
    """On symbols: `make_step`'s parts, run as they stand, round the same numbers in the same order."""
    options, scalars = replace(family.options, decay=form.decay), scalars_of(family)
    model = replace(form.model, update=family.model.update)
    parts, whole = (Definitions("both_") for _ in range(2))
    one, other = RoundedArithmetic(parts), RoundedArithmetic(whole)

    kept, m, v = make_until_root(other, model, options)(P, G, M, V, scalars)
    parameter = make_from_root(other, model)(kept, m, make_root(other, model)(v), scalars)

    entering = make_effective_gradient(one, model, options)(P, G, scalars)
    shrunk = make_shrunk(one, model, options)(P, scalars)
    update = make_update(one, model, options)(M, V, entering, scalars)
    summed = one.add(shrunk, update) if model.rounds_update else None
    if summed is None:  # the update is a product that is added exactly, and rounded once
        assert other.roundings[-1].exact == shrunk + update
        assert other.roundings[:-1] == one.roundings
    else:
        assert (summed, parts.atoms) == (parameter, whole.atoms)


@pytest.mark.parametrize(("family", "form"), FORMS, ids=lambda one: one.name)
def test_maximize_is_the_same_at_the_opposite_gradient(family: Family, form: Form) -> None:
    scalars = scalars_of(family)
    made = []
    for maximize, g in ((True, G), (False, -G)):
        definitions = Definitions("decay_")
        options = replace(family.options, decay=form.decay, maximize=maximize)
        entering = make_effective_gradient(RoundedArithmetic(definitions), form.model, options)(P, g, scalars)
        made.append((entering, definitions.atoms))
    assert made[0] == made[1]


def test_the_bound_is_on_what_enters() -> None:
    """With L2 decay a claim assumes nothing of the loss's gradient."""
    stated, bound = statement(families()[0]), Polynomial.variable("gradient_bound")
    for form in forms(stated.family):
        made = decayed(stated, form, accepted(stated, evaluation()))
        assert Atom(bound - made.entering, Relation.AT_LEAST).normal() in made.hypotheses
        of_loss = Atom(bound - G, Relation.AT_LEAST).normal() in made.hypotheses
        assert of_loss == (form.decay is Decay.DECOUPLED)
        assert (made.entering == G, made.kept == P) == (form.decay is Decay.DECOUPLED, form.decay is Decay.L2)
        definitions = Definitions("decay_")
        assert entering_and_kept(stated.family, form, definitions) == (made.entering, made.kept)
        assert {atom.normal() for atom in definitions.atoms} <= made.hypotheses
